package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	envconfig "github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/carrelhost/carrel/host"
)

// settings are the flags that decide a host's configuration.
type settings struct {
	file        string
	listen      string
	adminListen string
	data        string
	store       string
}

func (s *settings) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.file, "config", "", "configuration file (YAML)")
	f.StringVar(&s.listen, "listen", "", "address:port to listen on; port 0 takes any (CARREL_LISTEN)")
	f.StringVar(&s.adminListen, "admin-listen", "", "address:port for the administration alone (CARREL_ADMIN_LISTEN)")
	f.StringVar(&s.data, "data", "", "data directory (CARREL_DATA)")
	f.StringVar(&s.store, "store", "", "sqlite or memory (CARREL_STORE)")
}

// load returns the configuration: defaults, overridden by the file, by
// CARREL_* variables, by flags. Every fault is reported at once.
func (s *settings) load(e env) (host.Config, error) {
	cfg := host.DefaultConfig()
	if s.file != "" {
		b, err := os.ReadFile(s.file)
		if err != nil {
			return cfg, fmt.Errorf("read configuration: %w", err)
		}
		if err := decodeYAML(b, &cfg); err != nil {
			return cfg, fmt.Errorf("%s: %w", s.file, err)
		}
	}
	if err := envconfig.ParseWithOptions(&cfg, envconfig.Options{Prefix: "CARREL_", Environment: e.vars}); err != nil {
		return cfg, fmt.Errorf("CARREL_ variables: %w", err)
	}
	cfg.Listen = first(s.listen, cfg.Listen)
	cfg.AdminListen = first(s.adminListen, cfg.AdminListen)
	cfg.Data = first(s.data, cfg.Data)
	cfg.Store = first(s.store, cfg.Store)
	if err := fillKeys(cfg.Providers, e); err != nil {
		return cfg, err
	}
	return cfg, nil
}

// decodeYAML reads a configuration file strictly: a setting that this host
// does not have is a fault, with its line.
func decodeYAML(b []byte, cfg *host.Config) error {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	err := dec.Decode(cfg)
	if errors.Is(err, io.EOF) {
		return nil // an empty file
	}
	if err != nil {
		text := strings.ReplaceAll(err.Error(), " in type host.", " is no setting of this host, or not supported by it yet, under ")
		return errors.New(text)
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return errors.New("the file holds more than one YAML document")
	}
	return nil
}

// fillKeys replaces env:NAME by the variable's value.
func fillKeys(providers map[string]host.Provider, e env) error {
	var errs []error
	for name, p := range providers {
		variable, ok := strings.CutPrefix(p.APIKey, "env:")
		if !ok {
			continue
		}
		if p.APIKey = e.getenv(variable); p.APIKey == "" {
			errs = append(errs, fmt.Errorf("providers.%s.apiKey: the environment variable %s is not set", name, variable))
		}
		providers[name] = p
	}
	return errors.Join(errs...)
}

// printConfig writes the configuration with its secrets masked.
func printConfig(w io.Writer, cfg host.Config) error {
	providers := map[string]host.Provider{}
	for name, p := range cfg.Providers {
		if p.APIKey != "" {
			p.APIKey = "(secret)"
		}
		providers[name] = p
	}
	cfg.Providers = providers
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(cfg); err != nil {
		return fmt.Errorf("print configuration: %w", err)
	}
	return enc.Close()
}
