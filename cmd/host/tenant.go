package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/carrelhost/carrel/client"
)

func newTenantCommand(e env) *cobra.Command {
	c := &cobra.Command{
		Use:   "tenant",
		Short: "Make and list tenants, with the administrator's key",
		Args:  onlyCommands,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newTenantCreateCommand(e), newTenantLsCommand(e))
	return c
}

func newTenantCreateCommand(e env) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a tenant",
		Args:  exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := n.admin()
			if err != nil {
				return err
			}
			t, err := cl.CreateTenant(c.Context(), args[0])
			if err != nil {
				return err
			}
			return o.result(t, func(w io.Writer) {
				fmt.Fprintf(w, "tenant %s is there; give it an owner: carrel key create %s --role owner\n", t.Name, t.Name)
			})
		},
	}
	n.adminFlags(c)
	o.flag(c)
	return c
}

func newTenantLsCommand(e env) *cobra.Command {
	n, o := connection{e: e}, output{e: e}
	c := &cobra.Command{
		Use:   "ls",
		Short: "List the tenants",
		Args:  exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := n.admin()
			if err != nil {
				return err
			}
			all, err := client.All(maxListed, func(l client.ListOptions) (client.Page[client.Tenant], error) {
				return cl.Tenants(c.Context(), l)
			})
			if err != nil {
				return err
			}
			return o.result(all, func(w io.Writer) {
				var rows [][]string
				for _, t := range all {
					rows = append(rows, []string{t.Name, t.CreatedAt.Local().Format(time.DateTime)})
				}
				table(w, []string{"TENANT", "CREATED"}, rows)
			})
		},
	}
	n.adminFlags(c)
	o.flag(c)
	return c
}
