package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
)

func newKeyCommand(e env) *cobra.Command {
	c := &cobra.Command{
		Use:   "key",
		Short: "Make API keys, with the administrator's key",
		Args:  onlyCommands,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newKeyCreateCommand(e))
	return c
}

func newKeyCreateCommand(e env) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	var k client.NewKey
	c := &cobra.Command{
		Use:   "create TENANT --role owner|publisher|caller|viewer",
		Short: "Make an API key of a tenant and print its secret, this once",
		Args:  exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			if k.Role == "" {
				return usageError{errors.New("--role is missing")}
			}
			cl, err := n.admin()
			if err != nil {
				return err
			}
			made, err := cl.CreateKey(c.Context(), args[0], k)
			if k.Role == "owner" && errors.Is(err, client.Code(abi.Forbidden)) {
				return &shownAs{err: err, text: err.Error() +
					"\n  if the tenant has an owner key, whoever holds it goes on using it; another one cannot be made yet\n" +
					"  (but for the tenant default: start its host with one preset in CARREL_OWNER_KEY)"}
			}
			if err != nil {
				return err
			}
			return o.result(made, func(w io.Writer) {
				fmt.Fprintln(w, made.Secret)
				fmt.Fprintf(e.stderr, "%s key %s of tenant %s; the secret is shown this once\n", made.Role, made.ID, args[0])
			})
		},
	}
	n.adminFlags(c)
	o.flag(c)
	f := c.Flags()
	f.StringVar(&k.Role, "role", "", "what the key may do: owner, publisher, caller or viewer")
	f.StringVar(&k.Name, "name", "", "a name for people")
	f.StringVar(&k.Subject, "subject", "", "the end user that every call with the key is for")
	f.BoolVar(&k.AssertSubject, "assert-subject", false, "calls may say which end user they are for (a backend's key)")
	return c
}
