package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
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
	n.flagsFor(c, "API key", "CARREL_KEY")
}

// adminFlags is flags for commands that use the administrator's key.
func (n *connection) adminFlags(c *cobra.Command) {
	n.flagsFor(c, "the administrator's key", "CARREL_ADMIN_KEY")
}

func (n *connection) flagsFor(c *cobra.Command, key, variable string) {
	c.Flags().StringVar(&n.host, "host", "", "address of the host (CARREL_HOST; else what DATA/address says)")
	c.Flags().StringVar(&n.key, "key", "", key+" ("+variable+"; else what DATA holds); better in the environment than here")
	c.Flag("key").Annotations = map[string][]string{keyVariable: {variable}}
	c.Flags().StringVar(&n.data, "data", "", "DATA, the data directory of a host on this machine (CARREL_DATA; else the "+
		host.DefaultConfig().Data+" with a file address in this folder or the nearest one above)")
}

func (n *connection) subjectFlag(c *cobra.Command) {
	c.Flags().Var(filled{&n.subject, "subject"}, "subject", "the end user that this is for (the key must allow it)")
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
	data := first(n.data, n.e.getenv("CARREL_DATA"))
	where := ""
	if data == "" {
		data, where = nearestData(), ", here or in a folder above"
	}
	local, err := readLine(filepath.Join(data, "address"))
	if err != nil {
		return nil, err
	}
	base := withScheme(first(n.host, n.e.getenv("CARREL_HOST"), local))
	if base == "" {
		return nil, fmt.Errorf("%w: there is no file %s%s; start a host with `carrel serve`, name its data directory with --data or CARREL_DATA, or another host with --host or CARREL_HOST",
			errNoHost, filepath.Join(data, "address"), where)
	}
	key := first(n.key, n.e.getenv(variable), n.e.getenv(preset))
	// A key in a file is for the host that wrote it: no other machine gets it.
	if key == "" && (base == local || isLoopback(base)) {
		if key, err = readLine(filepath.Join(data, file)); err != nil {
			return nil, err
		}
	}
	if key == "" {
		return nil, usageError{fmt.Errorf("no key for %s: give --key or %s (a key in %s is used only for a host on this machine)", base, variable, filepath.Join(data, file))}
	}
	return &client.Client{Base: base, Key: key, Subject: n.subject}, nil
}

// maxAbove is how many folders above the current one are looked through.
const maxAbove = 8

// nearestData returns the default data directory that has a host's address, in
// the current folder or the nearest one above: commands work in a plugin's
// folder below the one that the host was started in.
func nearestData() string {
	data := host.DefaultConfig().Data
	near := data
	for range maxAbove + 1 {
		if _, err := os.Stat(filepath.Join(near, "address")); err == nil && private(near) {
			return near
		}
		near = filepath.Join("..", near)
	}
	return data
}

// private reports whether a folder is for its owner alone, as a host makes its
// data directory. Another user's that is cannot be read, and one that is not
// may be anybody's: no key goes to an address in it.
func private(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.Mode().Perm()&0o077 == 0
}

// readLine returns what a host's file says, or nothing if it is not there.
func readLine(path string) (string, error) {
	b, err := os.ReadFile(path) //nolint:gosec // a path that the user names
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find the host: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// withScheme completes an address that a person wrote, such as localhost:8080.
func withScheme(base string) string {
	if base == "" || strings.Contains(base, "://") {
		return base
	}
	return "http://" + base
}

func isLoopback(base string) bool {
	u, err := url.Parse(base)
	if err != nil {
		return false
	}
	return u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()
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
