package carreltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	carrel "github.com/carrelhost/carrel/sdk/go"

	"github.com/carrelhost/carrel/abi"
)

// maxOutputBytes is a host's default limit of one call's result.
const maxOutputBytes = 1 << 20

// call is one running call of the plugin: the carrel.Host that it sees.
type call struct {
	host   *Host
	input  []byte
	output []byte
	failed *carrel.Error
	depth  int  // of calls around this one
	alone  bool // in a warm-up: the host has no answers

	service, method string // that run
}

// run runs an export and returns its failure.
func (c *call) run(export string) error {
	result := c.host.plugin.Run(c, export)
	switch {
	case c.failed != nil:
		return c.failed
	case result != 0:
		return fmt.Errorf("the export %s returned %d", export, result)
	default:
		return nil
	}
}

func (c *call) Input() ([]byte, error) { return slices.Clone(c.input), nil }

func (c *call) Output(b []byte) error {
	if len(c.output)+len(b) > maxOutputBytes {
		return refuse("output_write", abi.E2BIG, abi.LimitExceeded, "the result is larger than 1 MiB")
	}
	c.output = append(c.output, b...)
	return nil
}

func (c *call) Fail(code, message string) { c.failed = &carrel.Error{Code: code, Message: message} }

// Emit fails as it does on every host that there is.
func (c *call) Emit(carrel.EmitKind, []byte) error {
	if c.alone {
		return refuseAlone("emit")
	}
	r := refuse("emit", abi.ENOSYS, abi.NotFound, "this host has no streams")
	r.Remedy = "use `call` and write the whole result"
	return r
}

func (c *call) Log(level int, text string) {
	c.host.Logs = append(c.host.Logs, Line{level, text})
}

func (c *call) Deadline() time.Time {
	if c.alone {
		return time.Now().Add(time.Hour)
	}
	if c.host.Deadline.IsZero() {
		return time.Now().Add(time.Minute)
	}
	return c.host.Deadline
}

func (c *call) Random(b []byte) error {
	_, err := c.host.random.Read(b)
	return err
}

func (c *call) Has(feature string) bool {
	return !c.alone && c.operation(abi.Op(feature)) != nil
}

// refuseAlone is a host's answer in a warm-up.
func refuseAlone(op string) error {
	r := refuse(op, abi.ENOSYS, abi.NotFound, "host calls do not work in _initialize, carrel_describe and the warm-up, at admission")
	r.Remedy = "do without its answer there, and ask again in the call"
	return r
}

// operation returns what performs an operation, or nil: then hosts do not have
// it either.
func (c *call) operation(op abi.Op) func(request []byte) (any, error) {
	h := c.host
	switch op {
	case abi.OpContext:
		return func([]byte) (any, error) {
			info := h.Info
			info.Service, info.Method = c.service, c.method
			return info, nil
		}
	case abi.OpConfigGet:
		return func([]byte) (any, error) {
			if h.Config == nil {
				return struct{}{}, nil
			}
			return h.Config, nil
		}
	case abi.OpInvoke:
		return c.invoke
	case abi.OpModelGenerate:
		return c.generate
	case abi.OpMemoryDefaultID:
		return c.defaultID
	case abi.OpMemoryMessages:
		return h.memory.messages
	case abi.OpMemoryAppend:
		return h.memory.append
	case abi.OpMemoryDelete:
		return h.memory.delete
	case abi.OpMemoryList:
		return h.memory.list
	default:
		return nil
	}
}

func (c *call) Call(op abi.Op, request []byte) ([]byte, error) {
	c.host.Asked = append(c.host.Asked, Asked{op, slices.Clone(request)})
	if c.alone {
		return nil, refuseAlone(string(op))
	}
	perform := c.operation(op)
	if perform == nil {
		r := refuse(string(op), abi.ENOSYS, abi.BadRequest, fmt.Sprintf("this host has no operation %.64q", string(op)))
		r.Remedy = "ask with `feature` before calling it"
		return nil, r
	}
	result, err := perform(request)
	if err != nil {
		return nil, asRefusal(op, err)
	}
	return json.Marshal(result)
}

// asRefusal makes a refusal of any failure.
func asRefusal(op abi.Op, err error) error {
	var refused *carrel.Refusal
	var own *carrel.Error
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &own):
		return refuse(string(op), abi.EIO, abi.GuestFailed, own.Error())
	default:
		return refuse(string(op), abi.EIO, abi.Internal, err.Error())
	}
}

func refuse(op string, errno abi.Errno, code abi.Code, message string) *carrel.Refusal {
	return &carrel.Refusal{Op: op, Errno: errno, Code: code.String(), Message: message}
}

func (c *call) invoke(request []byte) (any, error) {
	const op = string(abi.OpInvoke)
	var r struct {
		Plugin, Service, Method string
		Args                    json.RawMessage
	}
	if err := json.Unmarshal(request, &r); err != nil {
		return nil, refuse(op, abi.EINVAL, abi.MalformedJSON, err.Error())
	}
	if c.depth+1 >= abi.MaxCallDepth {
		return nil, refuse(op, abi.EQUOTA, abi.LimitExceeded, fmt.Sprintf("calls are nested more than %d deep", abi.MaxCallDepth))
	}
	own := r.Service + "." + r.Method
	address := own
	if r.Plugin != "" && r.Plugin != c.host.plugin.Name {
		address = r.Plugin + "/" + own
		if !c.host.mayCall(address) {
			refused := refuse(op, abi.EPERM, abi.Forbidden, "the manifest does not ask to call "+address)
			refused.Remedy = fmt.Sprintf("add %q to Capabilities.Call", address)
			return nil, refused
		}
	}
	var output any
	var err error
	if scripted, ok := c.host.Methods[address]; ok {
		output, err = scripted(r.Args)
	} else {
		m, has := c.host.find(own)
		if !has || m.Kind != abi.KindHandler || address != own {
			return nil, refuse(op, abi.ENOENT, abi.NotFound, fmt.Sprintf("the test scripts no answer: set Methods[%q]", address))
		}
		if fault := check(m.Params, r.Args); fault != nil {
			return nil, refuse(op, abi.EINVAL, abi.InvalidParams, fault.Error())
		}
		var b []byte
		b, err = c.host.run(m, r.Args, c.depth+1)
		output = json.RawMessage(b)
		if isText(m) {
			output = string(b)
		}
	}
	if err != nil {
		return nil, err
	}
	return map[string]any{"output": output, "usage": carrel.Usage{}}, nil
}

// mayCall reports whether a pattern of capabilities.call covers an address.
func (h *Host) mayCall(address string) bool {
	for _, pattern := range h.allowed {
		prefix, wild := strings.CutSuffix(pattern, "*")
		if pattern == address || wild && strings.HasPrefix(address, prefix) {
			return true
		}
	}
	return false
}

func (c *call) generate(request []byte) (any, error) {
	const op = string(abi.OpModelGenerate)
	var p carrel.Prompt
	if err := json.Unmarshal(request, &p); err != nil {
		return nil, refuse(op, abi.EINVAL, abi.MalformedJSON, err.Error())
	}
	switch name := alias(p.Model); {
	case !c.host.models[name]:
		refused := refuse(op, abi.EPERM, abi.Forbidden, fmt.Sprintf("the manifest does not ask for the model %q", name))
		refused.Remedy = fmt.Sprintf("add %q to Capabilities.Models", name)
		return nil, refused
	case len(p.Messages) == 0:
		return nil, refuse(op, abi.EINVAL, abi.BadRequest, "there are no messages")
	case c.host.Model == nil:
		return nil, refuse(op, abi.EIO, abi.ModelFailed, "the test scripts no model: set Model")
	}
	return c.host.Model(p)
}
