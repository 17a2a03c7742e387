package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/plugins/manifest"
)

func newGrantCommand(e env) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	var call []string
	var namespace string
	var none bool
	c := &cobra.Command{
		Use:   "grant PLUGIN [--call PATTERN]... [--namespace NAME] | --none",
		Short: "Show or change what a plugin is granted",
		Long: "Show what a plugin is granted, or change it: what a flag names is replaced, the\n" +
			"rest stays. A pattern is plugin/Service.method, plugin/Service.* or plugin/*. In a\n" +
			"shared namespace plugins share the memory ids that callers name. The plugin's\n" +
			"manifest must ask for either as well.",
		Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := n.client()
			if err != nil {
				return err
			}
			named := c.Flags().Changed("namespace")
			if none && (len(call) > 0 || named) {
				return usageError{errors.New("--none contradicts the other flags")}
			}
			g, err := cl.Grant(c.Context(), args[0])
			if err != nil {
				return err
			}
			if none {
				g = client.Grant{}
			}
			if len(call) > 0 {
				g.Call = call
			}
			if named {
				g.MemoryNamespace = namespace
			}
			if none || len(call) > 0 || named {
				if g, err = cl.SetGrant(c.Context(), args[0], g); err != nil {
					return err
				}
			}
			if !none {
				warnUnasked(c.Context(), e, cl, args[0], call)
			}
			return o.result(g, func(w io.Writer) {
				if len(g.Call) > 0 {
					fmt.Fprintf(w, "%s may call: %s\n", args[0], strings.Join(g.Call, ", "))
				}
				if g.MemoryNamespace != "" {
					fmt.Fprintf(w, "%s shares the memory namespace %s\n", args[0], g.MemoryNamespace)
				}
				if len(g.Call) == 0 && g.MemoryNamespace == "" {
					fmt.Fprintf(w, "%s is granted nothing\n", args[0])
				}
			})
		},
	}
	n.flags(c)
	o.flag(c)
	c.Flags().StringArrayVar(&call, "call", nil, "methods of another plugin that it may call")
	c.Flags().StringVar(&namespace, "namespace", "", "shared memory namespace that it may use; empty takes it back")
	c.Flags().BoolVar(&none, "none", false, "take back everything")
	return c
}

// warnUnasked says which patterns the active version's manifest does not ask
// for: granting them alone allows nothing. A key that may not read the
// manifest, or a plugin without an active version, gets no warning.
func warnUnasked(ctx context.Context, e env, cl *client.Client, plugin string, patterns []string) {
	if len(patterns) == 0 {
		return
	}
	p, err := cl.Plugin(ctx, plugin)
	if err != nil || p.Active == nil {
		return
	}
	v, err := cl.Version(ctx, plugin, p.Active.Digest)
	if err != nil {
		return
	}
	m, err := manifest.Parse(v.Manifest, manifest.Known{})
	if err != nil {
		return
	}
	for _, pattern := range patterns {
		if !slices.ContainsFunc(m.Capabilities.Call, func(asked string) bool { return overlap(asked, pattern) }) {
			fmt.Fprintf(e.stderr, "warning: the active version of %s does not ask for %s in its manifest's capabilities.call, and may not call it until one does\n", plugin, pattern)
		}
	}
}

// overlap reports whether two patterns have methods in common.
func overlap(a, b string) bool {
	p, errP := carrel.ParseCallPattern(a)
	q, errQ := carrel.ParseCallPattern(b)
	return errP == nil && errQ == nil && p.Plugin == q.Plugin &&
		(p.Service == "" || q.Service == "" || p.Service == q.Service) &&
		(p.Method == "" || q.Method == "" || p.Method == q.Method)
}
