// Command lead is a plugin that has another plugin do part of its work.
package main

import (
	"strings"

	carrel "github.com/carrelhost/carrel/sdk/go"
)

var plugin = carrel.Plugin{
	Name:        "team-lead",
	Version:     "1.0.0",
	Description: "Greets people in their language, which the plugin team-translator knows.",
	Services: []carrel.Service{{
		Name: "com.acme.Lead",
		Methods: []carrel.Method{
			carrel.Handler("greet", "Greets somebody in a language.", greet),
		},
	}},
	Capabilities: carrel.Capabilities{Call: []string{"team-translator/com.acme.Translator.translate"}},
}

type greetParams struct {
	Name     string `json:"name"`
	Language string `json:"language"`
}

type translateParams struct {
	Language string `json:"language"`
	Text     string `json:"text"`
}

// greet needs the capability above and the owner's grant. The inner call runs
// in the same request: same scope, same deadline.
func greet(ctx *carrel.Context, in greetParams) (string, error) {
	name := strings.TrimSpace(in.Name)
	if name == "" {
		return "", carrel.Fail("nobody", "the name is blank")
	}
	var out string
	_, err := ctx.Invoke("team-translator/com.acme.Translator.translate",
		translateParams{in.Language, "Welcome, " + name + "!"}, &out)
	return out, err
}

func main() { plugin.Main() }
