package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
)

func newDemoCommand(e env) *cobra.Command {
	var keep bool
	c := &cobra.Command{
		Use:   "demo",
		Short: "A tour: upload plugins, chat, and watch memory end with its scope",
		Long: "A tour with nothing to set up: a host on a scratch data directory, the built-in\n" +
			"offline model, and the example plugins. Each step says what happened to the memory.",
		Args: exactly(0),
		RunE: func(c *cobra.Command, _ []string) error { return demo(c.Context(), e, keep) },
	}
	c.Flags().BoolVar(&keep, "keep", false, "leave the host running after the tour, until SIGINT")
	return c
}

// demo runs a host of its own and walks through it as a client.
func demo(ctx context.Context, e env, keep bool) (err error) {
	data, err := os.MkdirTemp("", "carrel-demo-")
	if err != nil {
		return fmt.Errorf("scratch data directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	cfg := host.DefaultConfig()
	cfg.Data, cfg.Listen = data, "127.0.0.1:0"
	cfg.CompileCommand = compileCommand(e)
	cfg.Models = map[string]host.Model{"default": {Provider: host.ProviderOffline}}
	h, err := host.New(ctx, cfg, buildVersion(), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()

	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- h.Run(serving) }()
	info := h.Info()
	program, err := os.Executable()
	if err != nil {
		program = "" // only a hint's wording depends on it
	}
	t := &tour{
		e: e, program: program, c: &client.Client{Base: info.Address, Key: info.NewOwnerKey},
	}
	t.say("A host listens on %s, with a data directory of its own and the built-in offline model.", info.Address)
	err = t.walk(ctx)
	if err == nil && keep {
		t.say("\nThe host goes on. In another terminal:\n  export CARREL_HOST=%s CARREL_KEY=%s\n  carrel plugins\nCtrl-C ends it.", info.Address, info.NewOwnerKey)
		<-ctx.Done()
	}
	stop()
	return errors.Join(err, <-ended)
}
