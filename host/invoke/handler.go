package invoke

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/imports"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/strictjson"
	"github.com/carrelhost/carrel/plugins"
)

// handler runs a handler method: the guest's own code. It takes no lock and
// touches nothing by being called.
func (v *Invoker) handler(ctx context.Context, f *frame, args Args) (Result, error) {
	if err := f.method.Params.Validate(args.Value, len(args.JSON)); err != nil {
		return Result{}, err
	}
	f.tree.queued()
	if _, err := f.start(); err != nil {
		return Result{}, err
	}
	out, err := v.guest(ctx, f, f.method.Spec.Export, args.JSON)
	if err != nil {
		return Result{}, err
	}
	output, err := checkOutput(f.method, out)
	if err != nil {
		v.logLine(f, levelError, "failed: "+tellable(err))
		return Result{}, err
	}
	result := Result{ID: f.id, Output: output, Usage: f.usage}
	v.answered(ctx, f, result)
	return result, nil
}

// exportedID asks the plugin's own default memory id provider.
func (v *Invoker) exportedID(ctx context.Context, f *frame) (string, error) {
	out, err := v.guest(ctx, f, f.running.Manifest.DefaultMemoryID.Export, []byte("{}"))
	return string(out), err
}

// guest calls a function of the plugin within the plugin's own timeout, and
// returns its output. What it logged, and how it failed, goes to the plugin's
// log; what it used is added to the frame's usage.
func (v *Invoker) guest(ctx context.Context, f *frame, export string, input []byte) ([]byte, error) {
	timeout := pluginTimeout(f.running.Manifest)
	late := func() error {
		return carrel.FailLimit("invoke.guest", abi.Timeout, "limits.timeout",
			fmt.Sprintf("the plugin did not answer within %v (its manifest's limits.timeout)", timeout))
	}
	out, err := f.running.Code.Call(ctx, sandbox.Call{
		Export: export, Input: input, Host: imports.New(&guest{v, f}),
		Share: string(f.tree.call.Caller.Tenant), Limit: timeout, LimitCause: late,
	})
	f.usage.Guest += out.Guest
	f.usage.Fuel += out.Fuel
	for _, line := range out.Log {
		v.logLine(f, line.Level, line.Text)
	}
	if err == nil {
		return out.Output, nil
	}
	if e, ok := errors.AsType[*carrel.Error](err); ok && (e.Code == abi.GuestTrap || e.Code == abi.FuelExhausted) {
		// Its author knows the method; the export's name may be a tool's.
		named := *e
		named.Msg = fmt.Sprintf("%s.%s: %s", f.address.Service, f.address.Method, e.Msg)
		err = &named
	}
	err = ended(ctx, fmt.Errorf("call %s of %s: %w", export, f.address.Plugin, err))
	switch carrel.CodeOf(err) {
	case abi.GuestFailed:
		if e, ok := errors.AsType[*carrel.Error](err); ok {
			v.logLine(f, levelError, failure(e))
		}
	case abi.Timeout:
		v.logLine(f, levelError, fmt.Sprintf("timed out: %s; it used %d units of fuel in %v on a CPU",
			tellable(err), out.Fuel, out.Guest.Round(time.Millisecond)))
	default: // a trap, or that there was no fuel, is a line of out.Log already
	}
	return nil, err
}

// failure is the line that a plugin's log has of a failure in its own words.
func failure(e *carrel.Error) string {
	const unnamed = "failed" // what SDKs give errors that have no code
	if e.GuestCode == "" || e.GuestCode == unnamed {
		return "failed: " + e.Msg
	}
	return fmt.Sprintf("failed (%s): %s", e.GuestCode, e.Msg)
}

// levelError is the highest level of the import log.
const levelError = 3

// logLine adds a line to the log of an invocation's plugin.
func (v *Invoker) logLine(f *frame, level int, text string) {
	v.cfg.PluginLog.Add(f.tree.call.Caller.Tenant, f.address.Plugin, plugins.Entry{
		At: v.cfg.Now(), Level: level, Request: f.tree.call.Request,
		Method: string(f.address.Service) + "." + string(f.address.Method), Text: text,
	})
}

func pluginTimeout(m abi.Manifest) time.Duration {
	text := abi.DefaultTimeout
	if m.Limits != nil && m.Limits.Timeout != "" {
		text = m.Limits.Timeout
	}
	d, err := time.ParseDuration(text)
	if err != nil { // admission checked it
		d, _ = time.ParseDuration(abi.DefaultTimeout)
	}
	return d
}

// checkOutput holds what a guest wrote against the method's output schema.
func checkOutput(m *plugins.Method, out []byte) (any, error) {
	fail := func(msg string) error { return carrel.Fail("invoke.handler", abi.GuestFailed, msg) }
	if m.Output == nil {
		if !utf8.Valid(out) {
			return nil, fail("the plugin's output is not valid UTF-8")
		}
		return string(out), nil
	}
	if len(out) == 0 {
		return nil, fail("the plugin returned 0, for success, and wrote no output, though its manifest says that it answers with JSON")
	}
	value, err := strictjson.Value(out, strictjson.DefaultDepth)
	if err != nil {
		if carrel.CodeOf(err) == abi.LimitExceeded {
			return nil, fail("the plugin's output is more JSON than the host reads: " + tellable(err))
		}
		return nil, fail("the plugin's output is not JSON, though its manifest says so: " + tellable(err))
	}
	if err := m.Output.Validate(value, len(out)); err != nil {
		return nil, fail("the plugin's output does not match its manifest's output schema: " + faultsOf(err))
	}
	return json.RawMessage(out), nil
}

// tellable returns what an error may tell outsiders.
func tellable(err error) string {
	if e, ok := errors.AsType[*carrel.Error](err); ok && e.Msg != "" {
		return e.Msg
	}
	return carrel.CodeOf(err).String()
}

// faultsOf lists the faults of a validation in one line.
func faultsOf(err error) string {
	var parts []string
	for _, f := range errorFaults(err) {
		parts = append(parts, f.Pointer+": "+f.Message)
	}
	return strings.Join(parts, "; ")
}
