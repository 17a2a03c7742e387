package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host"
)

// connection is how a command finds the host and the key: flags, else the
// environment, else the files of a host on this machine.
type connection struct {
	e               env
	host, key, data string
	subject         string
}

func (n *connection) flags(c *cobra.Command) {
	c.Flags().StringVar(&n.host, "host", "", "address of the host (CARREL_HOST; else what DATA/address says)")
	c.Flags().StringVar(&n.key, "key", "", "API key (CARREL_KEY; else what DATA holds); better in the environment than here")
	c.Flags().StringVar(&n.data, "data", "", "data directory of a host on this machine (CARREL_DATA; else "+host.DefaultConfig().Data+")")
}

// client returns a client with an API key.
func (n *connection) client() (*client.Client, error) {
	return n.connect("CARREL_KEY", "CARREL_OWNER_KEY", "owner.key")
}

// admin returns a client with the administrator's key.
func (n *connection) admin() (*client.Client, error) {
	return n.connect("CARREL_ADMIN_KEY", "CARREL_ADMIN_KEY", "admin.key")
}

func (n *connection) connect(variable, preset, file string) (*client.Client, error) {
	data := first(n.data, n.e.getenv("CARREL_DATA"), host.DefaultConfig().Data)
	base := first(n.host, n.e.getenv("CARREL_HOST"))
	var err error
	if base == "" {
		if base, err = n.read(data, "address", "--host or CARREL_HOST"); err != nil {
			return nil, err
		}
	}
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	key := first(n.key, n.e.getenv(variable), n.e.getenv(preset))
	if key == "" {
		if key, err = n.read(data, file, "--key or "+variable); err != nil {
			return nil, err
		}
	}
	return &client.Client{Base: base, Key: key, Subject: n.subject}, nil
}

func (n *connection) read(dir, name, instead string) (string, error) {
	path := filepath.Join(dir, name)
	b, err := os.ReadFile(path) //nolint:gosec // a path that the user names
	if errors.Is(err, fs.ErrNotExist) {
		return "", usageError{fmt.Errorf("there is no %s: give %s, or --data of a host on this machine", path, instead)}
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// first returns the first of its arguments that is not empty.
func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
