// Command counter is a plugin that tries to keep state between calls, and
// cannot.
package main

import carrel "github.com/carrelhost/carrel/sdk/go"

var plugin = carrel.Plugin{
	Name:        "counter",
	Version:     "1.0.0",
	Description: "Counts its calls in a variable, and always says 1: every call has a fresh sandbox.",
	Services: []carrel.Service{{
		Name: "com.acme.Counter",
		Methods: []carrel.Method{
			carrel.Handler("count", "Adds 1 to a variable and returns it.", count),
		},
	}},
}

// calls is part of the module's memory, which every call gets anew.
var calls int

type result struct {
	Calls int `json:"calls"`
}

func count(*carrel.Context, struct{}) (result, error) {
	calls++
	return result{calls}, nil
}

func main() { plugin.Main() }
