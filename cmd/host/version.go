package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
)

// buildVersion is what the build says of itself.
func buildVersion() client.HostVersion {
	v := client.HostVersion{Version: "(devel)", Go: runtime.Version(), ABI: abi.Version}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}
	return v
}

func newVersionCommand(e env) *cobra.Command {
	o := output{e: e}
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary",
		Args:  exactly(0),
		RunE: func(*cobra.Command, []string) error {
			v := buildVersion()
			return o.result(v, func(w io.Writer) {
				name := strings.TrimSpace(v.Version + " " + v.Commit) // a build may have no commit
				fmt.Fprintf(w, "carrel %s (%s, %s)\n", name, v.ABI, v.Go)
			})
		},
	}
	o.flag(c)
	return c
}
