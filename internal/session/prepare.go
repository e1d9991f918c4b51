package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/bodycam-dev/bodycam/internal/harness"
	"github.com/bodycam-dev/bodycam/internal/kind"
)

// Prepare finds the agent's program and settles how it is started, before anything is made: what is wrong with the
// harness's parameters or its installation shows here. [Run] does it where nobody did.
func (o *Options) Prepare(ctx context.Context) error {
	if o.inv != nil {
		return nil
	}
	if o.Oracle {
		if o.Plan.Solution == nil {
			return errors.New("the task has no reference solution to run")
		}
		return nil
	}
	a := o.Plan.Agent
	params := map[string]any{}
	for k, raw := range a.Parameters {
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			return fmt.Errorf("parameter %s of the agent: %w", k, err)
		}
		params[k] = v
	}
	if len(a.Command) > 0 {
		params["command"] = a.Command
	}
	searchPath := ""
	for _, e := range o.Plan.Env {
		if e.Name == "PATH" {
			searchPath = e.Value
		}
	}
	found, err := o.Harness.Detect(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrEnvironment, err)
	}
	inv, err := o.Harness.Prepare(ctx, harness.Request{
		Instruction: o.Plan.Task.Instruction, Model: a.Model, ModelURL: o.modelURL(), Workdir: o.Plan.Workdir, Home: a.Home, Path: searchPath,
		Params: params, KeepReasoning: o.Plan.Transcripts.KeepReasoning, Skills: o.skillDirs(), Timeout: o.agentBound().D(),
		MCP: o.toolServers(),
	})
	if err != nil {
		return err
	}
	o.found, o.inv = found, inv
	return nil
}

// agentBound is how long the agent may run.
func (o *Options) agentBound() kind.Duration {
	if o.Plan.Agent.Timeout != 0 {
		return o.Plan.Agent.Timeout
	}
	return o.Plan.Timeouts.Agent
}

// toolServers are the tool servers that the harness shall have.
func (o *Options) toolServers() []harness.MCPServer {
	var out []harness.MCPServer
	for _, m := range o.Plan.Agent.MCPServers {
		out = append(out, harness.MCPServer{Name: m.Name, Transport: m.Transport, URL: m.URL, Command: m.Command, Args: m.Args})
	}
	return out
}

// skillDirs are the places inside where skills lie.
func (o *Options) skillDirs() []string {
	var out []string
	for _, k := range o.Plan.Skills {
		out = append(out, k.Roots...)
	}
	return out
}

// modelURL is the model's endpoint as the sandbox knows it.
func (o *Options) modelURL() string {
	u, err := url.Parse(o.Model.URL)
	if err != nil || o.Model.URL == "" {
		return ""
	}
	return "http://" + ModelHost + strings.TrimSuffix(u.Path, "/")
}
