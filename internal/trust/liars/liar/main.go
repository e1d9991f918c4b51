// Command liar serves one agent of the set, for audits that run it in a sandbox.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/bodycam-dev/bodycam/internal/trust/liars"
)

func main() {
	name := flag.String("agent", "weather", "name of the agent")
	listen := flag.String("listen", "127.0.0.1:8080", "address")
	flag.Parse()
	if err := serve(*name, *listen); err != nil {
		fmt.Fprintln(os.Stderr, "liar:", err)
		os.Exit(1)
	}
}

func serve(name, listen string) error {
	a, ok := liars.Get(name)
	if !ok {
		return fmt.Errorf("there is no agent %q", name)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	return (&liars.Server{Agent: a, OTLP: os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), Delay: 50 * time.Millisecond}).Serve(ctx, l)
}
