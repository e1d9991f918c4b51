// Package model is a scripted model server: it plays a YAML script of tool calls to any agent that speaks OpenAI
// Responses, OpenAI Chat Completions, Anthropic Messages or Gemini, streaming or not. Agents can be tested with it
// without cost, without a network and with the same result every time.
//
// The server keeps no conversation state. Each request carries its whole history; the server walks the script
// along that history (which turn was answered, what the tools returned) and so finds the turn that comes next. A
// client that retries gets the same answer. Only turns that leave no trace in a history (errors, dropped
// connections, stalls) are counted. See docs/MODEL.md for the script's reference.
package model
