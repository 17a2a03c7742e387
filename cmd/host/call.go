package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/client"
)

func newCallCommand(e env) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	var opts client.CallOptions
	var headers []string
	var memory string
	c := &cobra.Command{
		Use:   "call ADDRESS [KEY=VALUE | KEY:=JSON]...",
		Short: "Call a service method",
		Long: "Call a service method, such as nice-and-mean/com.acme.MyChat.chat. KEY=VALUE\n" +
			"gives a param as text, KEY:=JSON as JSON. The answer goes to stdout, what became\n" +
			"of the memory to stderr.",
		Example: "  carrel call nice-and-mean/com.acme.MyChat.chat id=42 'msg=My name is Ada'\n" +
			"  carrel call nice-and-mean/com.acme.MyChat.chat --memory 42 'msg=Who am I?'",
		Args: atLeast(1),
		RunE: func(c *cobra.Command, args []string) error {
			address, version, err := parseAddress(args[0])
			if err != nil {
				return err
			}
			params, err := parseParams(args[1:])
			if err != nil {
				return err
			}
			if opts.Header, err = parseHeaders(headers); err != nil {
				return err
			}
			cl, err := n.client()
			if err != nil {
				return err
			}
			m, err := cl.Describe(c.Context(), address, version)
			if err != nil {
				return err
			}
			schema, err := readSchema(m)
			if err != nil {
				return err
			}
			if memory != "" {
				if m.Memory.Param == "" {
					return usageError{fmt.Errorf("%s takes no memory id", address)}
				}
				if _, twice := params[m.Memory.Param]; twice {
					return usageError{fmt.Errorf("--memory is the param %s, which is given too", m.Memory.Param)}
				}
				params[m.Memory.Param] = memory
			}
			schema.warnUnknown(e.stderr, params)
			out, err := cl.Invoke(c.Context(), address, version, params, opts)
			if err != nil {
				return withLog(c.Context(), cl, address.Plugin, schema.withHints(params, err))
			}
			if out.Replayed { // no member of the answer says so
				fmt.Fprintln(e.stderr, "replayed: the answer of an earlier call with this key")
			}
			return o.result(out, func(w io.Writer) {
				fmt.Fprintln(w, text(out.Output))
				if out.MemoryID != "" {
					fmt.Fprintf(e.stderr, "memory: %q\n", out.MemoryID)
				}
				printEvicted(e.stderr, out.Evicted, out.EvictionPending)
			})
		},
	}
	n.flags(c)
	o.flag(c)
	f := c.Flags()
	f.Var(filled{&memory, "memory"}, "memory", "memory id, given as the param that the method names")
	f.StringArrayVarP(&headers, "header", "H", nil, "a request header, NAME: VALUE")
	f.Var(timeLimit{&opts.Timeout}, "timeout", "give up after this long, such as 20s")
	f.Var(filled{&opts.Session, "session"}, "session", "session that the call is made in (carrel sessions open)")
	f.Var(idempotencyKey{&opts.IdempotencyKey}, "idempotency-key", "makes the call safe to repeat: it is made once")
	f.BoolVar(&opts.RejectBusy, "no-wait", false, "fail instead of waiting for another turn of the memory id")
	n.subjectFlag(c)
	return c
}

// parseAddress reads an address and keeps its version as it was written.
func parseAddress(s string) (carrel.Address, string, error) {
	a, err := carrel.ParseAddress(s)
	if err != nil {
		return a, "", withFaults(s, err)
	}
	plugin, _, _ := strings.Cut(s, "/")
	_, version, _ := strings.Cut(plugin, "@")
	return a, version, nil
}

func parseHeaders(lines []string) (http.Header, error) {
	h := http.Header{}
	for _, l := range lines {
		name, value, ok := strings.Cut(l, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, usageError{fmt.Errorf("%q is not NAME: VALUE", l)}
		}
		h.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return h, nil
}

// text is a method's output as a person reads it: text as it is, else JSON.
func text(output any) string {
	if s, ok := output.(string); ok {
		return visible(s)
	}
	b, err := json.Marshal(output)
	if err != nil { // it was decoded from JSON
		return fmt.Sprint(output)
	}
	return string(b)
}
