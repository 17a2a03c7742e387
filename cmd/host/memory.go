package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/client"
)

func newMemoryCommand(e env) *cobra.Command {
	c := &cobra.Command{
		Use:   "memory",
		Short: "Look at chat memory, end it, export and import it",
		Args:  onlyCommands,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(
		newMemoryLsCommand(e), newMemoryShowCommand(e), newMemoryRmCommand(e),
		newMemoryExportCommand(e), newMemoryImportCommand(e), newMemoryEraseCommand(e),
	)
	return c
}

func newMemoryLsCommand(e env) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	var f client.MemoryFilter
	c := &cobra.Command{
		Use:   "ls",
		Short: "List the chat histories that the key may see",
		Args:  exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := n.client()
			if err != nil {
				return err
			}
			all, err := listMemories(c.Context(), cl, f)
			if err != nil {
				return err
			}
			return o.result(all, func(w io.Writer) {
				var rows [][]string
				for _, m := range all {
					rows = append(rows, []string{
						m.Plugin, strconv.Quote(m.MemoryID), m.Kind, strconv.FormatInt(m.Messages, 10),
						m.LastUsedAt.Local().Format(time.DateTime), m.Key,
					})
				}
				table(w, []string{"PLUGIN", "MEMORY ID", "KIND", "MESSAGES", "LAST USED", "KEY"}, rows)
			})
		},
	}
	n.flags(c)
	o.flag(c)
	c.Flags().StringVar(&f.Plugin, "plugin", "", "only of this plugin")
	c.Flags().StringVar(&f.Prefix, "prefix", "", "only memory ids that begin so")
	n.subjectFlag(c)
	return c
}

func listMemories(ctx context.Context, cl *client.Client, f client.MemoryFilter) ([]client.Memory, error) {
	return client.All(maxListed, func(l client.ListOptions) (client.Page[client.Memory], error) {
		return cl.Memories(ctx, f, l)
	})
}

func newMemoryShowCommand(e env) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	var window string
	c := &cobra.Command{
		Use:   "show KEY | PLUGIN/MEMORY-ID",
		Short: "Print a chat history, oldest message first",
		Args:  exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			plugin, method, err := parseWindow(window)
			if err != nil {
				return err
			}
			cl, err := n.client()
			if err != nil {
				return err
			}
			key, err := findMemory(c.Context(), cl, args[0])
			if err != nil {
				return err
			}
			if err := wantPlugin(c.Context(), cl, key, plugin); err != nil {
				return err
			}
			all, err := readMemory(c.Context(), cl, key, method)
			if err != nil {
				return err
			}
			return o.result(all, func(w io.Writer) {
				fmt.Fprintf(w, "TURN  %-9s  CONTENT\n", "ROLE")
				for _, m := range all {
					turn := "-" // the system message, or one that is not stored
					if m.Turn > 0 {
						turn = strconv.FormatInt(m.Turn, 10)
					}
					fmt.Fprintf(w, "%4s  %-9s  %s\n", turn, m.Role, strings.ReplaceAll(visible(m.Content), "\n", "\n                 "))
				}
			})
		},
	}
	n.flags(c)
	n.subjectFlag(c)
	o.flag(c)
	c.Flags().Var(filled{&window, "window"}, "window", "only what the next call of this method of its plugin, [PLUGIN/]Service.method, would send")
	return c
}

// parseWindow reads [PLUGIN/]Service.method; nothing is no window.
func parseWindow(s string) (plugin, method string, err error) {
	if s == "" {
		return "", "", nil
	}
	method = s
	if before, after, named := strings.Cut(s, "/"); named {
		plugin, method = before, after
	}
	a, err := carrel.ParseAddress(first(plugin, "any") + "/" + method)
	if err != nil || a.Version != (carrel.VersionRef{}) {
		return "", "", usageError{fmt.Errorf("--window is Service.method, such as com.acme.MyChat.chat, not %q", s)}
	}
	return plugin, method, nil
}

// wantPlugin checks that a history is one of a plugin, if one is named: a host
// takes a method for one of the history's own plugin.
func wantPlugin(ctx context.Context, cl *client.Client, key, plugin string) error {
	if plugin == "" {
		return nil
	}
	all, err := listMemories(ctx, cl, client.MemoryFilter{Plugin: plugin})
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(m client.Memory) bool { return m.Key == key }) {
		return usageError{fmt.Errorf("--window: the history is none of the plugin %s", plugin)}
	}
	return nil
}

// readMemory reads a history, or what the next call of a method would send of
// it.
func readMemory(ctx context.Context, cl *client.Client, key, method string) ([]client.Message, error) {
	if method != "" {
		return cl.Window(ctx, key, method)
	}
	return client.All(maxListed, func(l client.ListOptions) (client.Page[client.Message], error) {
		return cl.Messages(ctx, key, l)
	})
}

func newMemoryRmCommand(e env) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	var turn int64
	c := &cobra.Command{
		Use:   "rm KEY | PLUGIN/MEMORY-ID",
		Short: "End a chat history, or delete one turn of it, whatever runs on it",
		Long: "End a chat history, or delete one turn of it, whatever runs on it. The column TURN\n" +
			"of `carrel memory show` has the numbers of turns; they stay when others are deleted.",
		Example: "  carrel memory rm nice-and-mean/42\n" +
			"  carrel memory rm nice-and-mean/42 --turn 3",
		Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := n.client()
			if err != nil {
				return err
			}
			key, err := findMemory(c.Context(), cl, args[0])
			if err != nil {
				return err
			}
			if turn > 0 {
				if err := cl.DeleteTurn(c.Context(), key, turn); err != nil {
					return err
				}
				return o.result(deletedTurn{key, turn}, func(w io.Writer) { fmt.Fprintf(w, "deleted: turn %d\n", turn) })
			}
			done, err := cl.DeleteMemory(c.Context(), key)
			if err != nil {
				return err
			}
			return o.result(done, func(w io.Writer) { printEvicted(w, done.Evicted, done.EvictionPending) })
		},
	}
	n.flags(c)
	n.subjectFlag(c)
	o.flag(c)
	c.Flags().Var(turnNumber{&turn}, "turn", "delete only this turn; the history stays")
	return c
}

// deletedTurn is the result of a turn's deletion.
type deletedTurn struct {
	Key  string `json:"key"`
	Turn int64  `json:"turn"`
}

// findMemory returns the key of a history that a person named by key, or by
// plugin and memory id. Keys have no slash.
func findMemory(ctx context.Context, cl *client.Client, name string) (string, error) {
	plugin, id, named := strings.Cut(name, "/")
	if !named {
		return name, nil
	}
	all, err := listMemories(ctx, cl, client.MemoryFilter{Plugin: plugin, Prefix: id})
	if err != nil {
		return "", err
	}
	var found, kinds []string
	for _, m := range all {
		if m.MemoryID == id {
			found = append(found, m.Key)
			kinds = append(kinds, fmt.Sprintf("%s (%s, %s, last used %s)", m.Key, m.Kind,
				counted(int(m.Messages), "message", "messages"), m.LastUsedAt.Local().Format(time.DateTime)))
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("%s has no memory %q: %w", plugin, id, errNotFound)
	case 1:
		return found[0], nil
	default:
		return "", usageError{fmt.Errorf("%s has %d memories %q, of other kinds or owners; name one by its key: %s", plugin, len(found), id, strings.Join(kinds, ", "))}
	}
}
