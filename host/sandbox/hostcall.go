package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/carrelhost/carrel/abi"
)

// results are those of host calls, by handle. They are the run's and die with
// it.
type results struct {
	byHandle map[uint32][]byte
	last     uint32
	left     int // bytes that may be held in addition
}

// put keeps a result under a new handle, from 1. Handles are never used again
// in one run, and host calls are bounded far below 2³¹.
func (t *results) put(b []byte) (handle uint32) {
	if t.byHandle == nil {
		t.byHandle = map[uint32][]byte{}
	}
	t.last++
	t.byHandle[t.last] = b
	t.left -= len(b)
	return t.last
}

// call performs an operation: what was asked for is copied before the host
// sees it, and the guest has no CPU slot meanwhile.
func call(ctx context.Context, r *run, a []uint64) int64 {
	op, ok := r.bytes(uint32(a[0]), uint32(a[1]))
	if !ok {
		return r.outside("operation")
	}
	request, ok := r.bytes(uint32(a[2]), uint32(a[3]))
	switch {
	case !ok:
		return r.outside("request")
	case len(op) == 0 || len(op) > abi.MaxOpBytes || !utf8.Valid(op):
		return r.refuse(abi.EINVAL, abi.BadRequest, fmt.Sprintf("the operation is not text of 1 to %d bytes", abi.MaxOpBytes), "")
	case len(request) > abi.MaxRequestBytes:
		return r.refuse(abi.E2BIG, abi.TooLarge, fmt.Sprintf(
			"the request is longer than %d bytes (limit call.requestBytes)", abi.MaxRequestBytes), "send less")
	case r.hostCalls >= r.cfg.HostCalls:
		return r.refuse(abi.EQUOTA, abi.LimitExceeded, fmt.Sprintf(
			"this call has made its %d host calls (limit sandbox.hostCalls)", r.cfg.HostCalls), "make fewer, larger calls")
	case r.results.left <= 0:
		return r.resultsFull()
	case r.host == nil:
		return r.refuse(abi.ENOSYS, abi.NotFound, "this host answers no operations", "")
	}
	r.hostCalls++
	r.charge(ctx, len(request)*jsonUnits)
	name, sent := abi.Op(op), bytes.Clone(request)
	var result []byte
	var refused *Refusal
	r.away(ctx, func() { result, refused = r.host.Do(ctx, name, sent) })
	if refused != nil {
		return r.refuseAs(refused)
	}
	if len(result) > r.results.left {
		// The operation took place; only its result is lost.
		return r.resultsFull()
	}
	return int64(r.results.put(result))<<32 | int64(len(result))
}

func (r *run) resultsFull() int64 {
	return r.refuse(abi.EQUOTA, abi.LimitExceeded, fmt.Sprintf(
		"the results that this call holds would be more than %d bytes (limit sandbox.resultBytes)", r.cfg.ResultBytes),
		"close the handles that were read")
}

func (r *run) noHandle() int64 {
	return r.refuse(abi.ENOENT, abi.NotFound, "there is no such handle; it may be closed", "")
}

// readHandle copies from a result; beyond its end there are 0 bytes.
func readHandle(ctx context.Context, r *run, a []uint64) int64 {
	b, ok := r.results.byHandle[uint32(a[0])]
	if !ok {
		return r.noHandle()
	}
	dst, ok := r.bytes(uint32(a[2]), uint32(a[3]))
	if !ok {
		return r.outside("destination")
	}
	return r.copy(ctx, dst, b, uint32(a[1]))
}

func closeHandle(_ context.Context, r *run, a []uint64) int64 {
	h := uint32(a[0])
	b, ok := r.results.byHandle[h]
	if !ok {
		return r.noHandle()
	}
	delete(r.results.byHandle, h)
	r.results.left += len(b)
	return 0
}

// feature answers 1 if the host knows an operation or a feature, else 0.
func feature(_ context.Context, r *run, a []uint64) int64 {
	name, ok := r.bytes(uint32(a[0]), uint32(a[1]))
	switch {
	case !ok:
		return r.outside("name")
	case len(name) > abi.MaxOpBytes: // no name is so long, and no more of it is looked at
		return 0
	case !utf8.Valid(name):
		return r.refuse(abi.EINVAL, abi.BadRequest, "the name is not valid UTF-8", "")
	case r.host == nil || !r.host.Knows(string(name)):
		return 0
	default:
		return 1
	}
}
