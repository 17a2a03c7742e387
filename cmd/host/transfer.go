package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/client"
)

// newMemoryExportCommand has no --json: its result is JSON already.
func newMemoryExportCommand(e env) *cobra.Command {
	n := connection{e: e}
	c := &cobra.Command{
		Use:   "export KEY | PLUGIN/MEMORY-ID",
		Short: "Print a chat history as JSON lines",
		Long: "Print a chat history as JSON lines: what it is, a line for each message, and an\n" +
			"end. Where it fails, what it printed is not whole and `memory import` refuses it.",
		Example: "  carrel memory export nice-and-mean/42 > 42.jsonl\n" +
			"  carrel memory import 42.jsonl --memory copy-of-42",
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
			history, err := cl.Export(c.Context(), key)
			if err != nil {
				return err
			}
			defer history.Close() //nolint:errcheck // what counts is how reading ends
			if _, err := io.Copy(e.stdout, history); err != nil {
				return fmt.Errorf("export: %w", err)
			}
			return nil
		},
	}
	n.flags(c)
	n.subjectFlag(c)
	return c
}

func newMemoryImportCommand(e env) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	var options client.ImportOptions
	c := &cobra.Command{
		Use:   "import FILE | -",
		Short: "Make a chat history of an exported one",
		Long: "Make a chat history of an exported one, whole or not at all. Its plugin must be\n" +
			"active, and its memory id free; - reads standard input.",
		Example: "  carrel memory import 42.jsonl --memory copy-of-42",
		Args:    exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			from := e.stdin
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return fmt.Errorf("import: %w", err)
				}
				defer file.Close() //nolint:errcheck // it is only read
				info, err := file.Stat()
				if err != nil {
					return fmt.Errorf("import: %w", err)
				}
				if info.IsDir() {
					return fmt.Errorf("import: %s is a folder; name the file of one history", args[0])
				}
				if info.Mode().IsRegular() {
					options.Size = info.Size()
				}
				from = file
			}
			cl, err := n.client()
			if err != nil {
				return err
			}
			made, err := cl.Import(c.Context(), from, options)
			if err != nil {
				return err
			}
			return o.result(made, func(w io.Writer) {
				fmt.Fprintf(w, "imported: memory %q of %s (%s), key %s\n",
					made.MemoryID, made.Plugin, counted(int(made.Messages), "message", "messages"), made.Key)
			})
		},
	}
	n.flags(c)
	o.flag(c)
	c.Flags().Var(filled{&options.Plugin, "plugin"}, "plugin", "give it to this plugin, not to the one that it is from")
	c.Flags().Var(filled{&options.MemoryID, "memory"}, "memory", "give it this memory id, not the one that it had")
	return c
}

func newMemoryEraseCommand(e env) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	c := &cobra.Command{
		Use:   "erase SUBJECT",
		Short: "End everything that an end user's calls touched",
		Long: "End every chat history that calls on behalf of an end user touched, by whichever\n" +
			"key, the user's sessions, and the answers kept for its idempotency keys. It is for\n" +
			"the tenant's owner, and asks no questions. If it fails, what was erased is\n" +
			"gone, and the same command goes on. It lists the first 1,000 histories.",
		Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			if args[0] == "" {
				return usageError{errors.New("SUBJECT is empty; name the end user")}
			}
			cl, err := n.client()
			if err != nil {
				return err
			}
			done, err := cl.EraseSubject(c.Context(), args[0])
			if err != nil {
				return err
			}
			return o.result(done, func(w io.Writer) {
				printEvicted(w, done.Evicted, false)
				if more := int(done.Histories) - len(done.Evicted); more > 0 {
					fmt.Fprintf(w, "ended: %s\n", counted(more, "more", "more"))
				}
				fmt.Fprintf(w, "erased: %q (%s)\n", args[0], counted(int(done.Histories), "history", "histories"))
			})
		},
	}
	n.flags(c)
	o.flag(c)
	return c
}
