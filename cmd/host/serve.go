package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/host"
)

func newServeCommand(e env) *cobra.Command {
	var s settings
	var show bool
	var format string
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the host",
		Long: "Run the host until SIGINT or SIGTERM; a second signal ends it at once.\n\n" +
			"Settings come from flags, else CARREL_* variables, else --config FILE, else\n" +
			"defaults. --print-config shows the result.",
		Args: exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := s.load(e)
			if err != nil {
				return err
			}
			if show {
				cfg.ChooseModel(e.getenv)
				return printConfig(e.stdout, cfg)
			}
			log, err := newLog(e.stderr, format)
			if err != nil {
				return err
			}
			return serve(c.Context(), e, cfg, log)
		},
	}
	s.flags(c)
	c.Flags().BoolVar(&show, "print-config", false, "print the configuration, secrets masked, and exit")
	c.Flags().StringVar(&format, "log", "text", "format of the log on stderr: text or json")
	return c
}

func newLog(w io.Writer, format string) (*slog.Logger, error) {
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, nil)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, nil)), nil
	default:
		return nil, usageError{fmt.Errorf("--log is text or json, not %q", format)}
	}
}

func serve(ctx context.Context, e env, cfg host.Config, log *slog.Logger) error {
	spareThread(e.getenv)
	chosen := cfg.ChooseModel(e.getenv)
	if cfg.CompileCommand = compileCommand(e); cfg.CompileCommand == nil {
		log.Warn("this program does not find itself: uploads are compiled in the host's process, without limits on time and memory")
	}
	h, err := host.New(ctx, cfg, buildVersion(), log)
	if err != nil {
		return err
	}
	return reported(h.Info().CrashReport, log, func() error {
		announce(e, h.Info(), chosen)
		return h.Run(ctx)
	}, h.Close)
}

// announce says where the host is, and what a person has to know once.
func announce(e env, info host.Info, model string) {
	fmt.Fprintf(e.stdout, "carrel listens on %s\n", info.Address)
	if info.AdminAddress != info.Address {
		fmt.Fprintf(e.stdout, "administration   on %s\n", info.AdminAddress)
	}
	fmt.Fprintf(e.stdout, "model: %s\n", model)
	if info.NewOwnerKey != "" {
		fmt.Fprintf(e.stdout, "owner key of tenant %q, shown this once (kept in %s):\n  %s\n", host.DefaultTenant, info.OwnerKeyFile, info.NewOwnerKey)
	}
	if r := info.Recovered; r.Scopes > 0 {
		fmt.Fprintf(e.stdout, "recovered: %s open when the last process ended, %s ended with them\n",
			counted(r.Scopes, "scope that was", "scopes that were"), counted(r.Histories, "history", "histories"))
	}
}
