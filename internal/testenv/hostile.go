package testenv

import (
	"context"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/host/sandbox/hostile"
)

// CallHostile calls a method of a plugin that host/sandbox/hostile made, or
// that is called as those are. Whoever attacks says so in the input.
func CallHostile(ctx context.Context, c *client.Client, plugin, method string) error {
	args := map[string]string{}
	if method != hostile.Fine && method != hostile.Busy {
		args["attack"] = "now"
	}
	_, err := c.Invoke(ctx, carrel.Address{Plugin: carrel.PluginName(plugin), Service: hostile.Service, Method: carrel.MethodName(method)}, "", args, client.CallOptions{})
	return err
}
