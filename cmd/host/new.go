package main

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/internal/scaffold"
)

func newNewCommand(e env) *cobra.Command {
	o := output{e: e}
	var lang string
	c := &cobra.Command{
		Use:   "new NAME",
		Short: "Start a plugin project in a new folder",
		Long: "Start a plugin project in a new folder of that name: source, a test, a README.\n" +
			"It builds offline; the SDK's files come along.",
		Example: "  carrel new hello --lang go && carrel build hello && carrel push hello",
		Args:    exactly(1),
		RunE: func(_ *cobra.Command, args []string) error {
			l, err := scaffold.ParseLanguage(lang)
			if err != nil {
				return usageError{err}
			}
			name := filepath.Base(filepath.Clean(args[0]))
			if err := scaffold.New(args[0], name, l); err != nil {
				return withFaults(args[0], err)
			}
			made := struct {
				Dir  string `json:"dir"`
				Name string `json:"name"`
				Lang string `json:"lang"`
			}{args[0], name, lang}
			return o.result(made, func(w io.Writer) {
				fmt.Fprintf(w, "%[1]s is a %[2]s plugin now; next: carrel build %[1]s && carrel push %[1]s\n", args[0], lang)
			})
		},
	}
	o.flag(c)
	c.Flags().StringVar(&lang, "lang", string(scaffold.Prompt), "prompt, go or c")
	return c
}
