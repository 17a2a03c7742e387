package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
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

// given returns which settings flags decide, and by which flag.
func (s *settings) given() map[string]string {
	given := map[string]string{}
	for path, flag := range map[string]struct{ name, value string }{
		"listen": {"--listen", s.listen}, "adminListen": {"--admin-listen", s.adminListen},
		"data": {"--data", s.data}, "store": {"--store", s.store},
	} {
		if flag.value != "" {
			given[path] = flag.name
		}
	}
	return given
}

// load returns the configuration: defaults, overridden by the file, by
// CARREL_* variables, by flags. Every fault of all of them is reported at once.
func (s *settings) load(e env) (host.Config, error) {
	cfg := host.DefaultConfig()
	var faults []error
	var content []byte
	if s.file != "" {
		var err error
		if content, err = os.ReadFile(s.file); err != nil {
			return cfg, fmt.Errorf("read configuration: %w", err)
		}
		faults = append(faults, decodeFile(s.file, content, &cfg))
	}
	faults = append(faults, fromVariables(&cfg, e))
	cfg.Listen = first(s.listen, cfg.Listen)
	cfg.AdminListen = first(s.adminListen, cfg.AdminListen)
	cfg.Data = first(s.data, cfg.Data)
	cfg.Store = first(s.store, cfg.Store)
	from := newWhence(s.given(), e.vars, s.file, content)
	faults = append(faults, from.place(fillKeys(cfg.Providers, e)), from.place(cfg.Validate()))
	return cfg, linesOf(faults)
}

// fromVariables overrides settings by CARREL_* variables, one after the other,
// so that each fault names its variable. A variable that nothing reads is one.
func fromVariables(cfg *host.Config, e env) error {
	known, err := envconfig.GetFieldParamsWithOptions(cfg, envconfig.Options{Prefix: variablePrefix})
	if err != nil {
		return fmt.Errorf("%s variables: %w", variablePrefix, err)
	}
	var faults []error
	names := slices.Clone(clientVariables)
	for _, k := range known {
		names = append(names, strings.TrimPrefix(k.Key, variablePrefix))
		if e.vars[k.Key] == "" {
			continue
		}
		err := envconfig.ParseWithOptions(cfg, envconfig.Options{Prefix: variablePrefix, Environment: map[string]string{k.Key: e.vars[k.Key]}})
		if parse, ok := errors.AsType[envconfig.ParseError](err); ok {
			faults = append(faults, fmt.Errorf("%s: `%s` is not %s", k.Key, e.vars[k.Key], kindOf(parse.Type.String())))
		} else if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", k.Key, err))
		}
	}
	return errors.Join(append(faults, unknownVariables(*cfg, e, names))...)
}

// fillKeys replaces env:NAME by the variable's value.
func fillKeys(providers map[string]host.Provider, e env) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(providers)) {
		p := providers[name]
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
		p.BaseURL = withoutPassword(p.BaseURL)
		providers[name] = p
	}
	cfg.Providers = providers
	cfg.Store = withoutPassword(cfg.Store)
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(cfg); err != nil {
		return fmt.Errorf("print configuration: %w", err)
	}
	return enc.Close()
}

// withoutPassword masks the password in a URL. What is no URL has none.
func withoutPassword(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.User == nil {
		return s
	}
	return u.Redacted()
}
