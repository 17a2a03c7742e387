package sandbox

import (
	"context"
	"fmt"
	"slices"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/strictjson"
)

func inputLen(_ context.Context, r *run, _ []uint64) int64 { return int64(len(r.input)) }

// inputRead copies a slice of the input; beyond its end there are 0 bytes.
func inputRead(ctx context.Context, r *run, a []uint64) int64 {
	dst, ok := r.bytes(uint32(a[0]), uint32(a[2]))
	if !ok {
		return r.outside("destination")
	}
	return r.copy(ctx, dst, r.input, uint32(a[1]))
}

// outputWrite appends all of it or nothing.
func outputWrite(ctx context.Context, r *run, a []uint64) int64 {
	src, ok := r.bytes(uint32(a[0]), uint32(a[1]))
	if !ok {
		return r.outside("output")
	}
	if len(src) > r.outputBytes-len(r.output) {
		return r.refuse(abi.E2BIG, abi.TooLarge, fmt.Sprintf(
			"the output would be longer than %d bytes (limit sandbox.outputBytes)", r.outputBytes), "write less")
	}
	// It is the output when all of it is there: the call may end meanwhile.
	n := len(r.output)
	all := slices.Grow(r.output, len(src))[:n+len(src)]
	r.copy(ctx, all[n:], src, 0)
	r.output = all
	return 0
}

// errorSet takes the guest's own failure. A faulty one changes nothing.
func errorSet(ctx context.Context, r *run, a []uint64) int64 {
	src, ok := r.bytes(uint32(a[0]), uint32(a[1]))
	if !ok {
		return r.outside("error")
	}
	const shape = `{"code": "^[a-z_]{1,64}$", "message": "…"}`
	if len(src) > abi.MaxGuestErrorBytes {
		return r.refuse(abi.EINVAL, abi.BadRequest, fmt.Sprintf("an error is at most %d bytes of JSON", abi.MaxGuestErrorBytes), "send "+shape)
	}
	r.charge(ctx, len(src)*jsonUnits)
	var sent struct {
		Code    *string `json:"code"`
		Message *string `json:"message"`
	}
	// A list of thousands would be taken apart before it is refused.
	_, err := strictjson.ValueWithin(src, strictjson.Bounds{Depth: 1, Values: errorValues})
	if err == nil {
		err = strictjson.Into(src, &sent, 1)
	}
	if err != nil {
		return r.refuse(abi.EINVAL, abi.MalformedJSON, "the error is not the JSON that is expected", "send "+shape)
	}
	if sent.Code == nil || sent.Message == nil || !guestCode(*sent.Code) {
		return r.refuse(abi.EINVAL, abi.BadRequest, "the error needs a code and a message", "send "+shape)
	}
	if len(*sent.Message) > abi.MaxGuestMessageBytes {
		return r.refuse(abi.EINVAL, abi.BadRequest, fmt.Sprintf("the message is longer than %d bytes", abi.MaxGuestMessageBytes), "send "+shape)
	}
	r.guestError = &guestError{code: *sent.Code, message: *sent.Message}
	return 0
}

// errorValues are those of an error_set: the object, a code and a message.
const errorValues = 3

func guestCode(s string) bool {
	for i := range len(s) {
		if c := s[i]; c != '_' && (c < 'a' || c > 'z') {
			return false
		}
	}
	return s != "" && len(s) <= abi.MaxGuestCodeBytes
}

// logLine keeps a line, or as much of it as there is room for; a full log is
// no error.
func logLine(ctx context.Context, r *run, a []uint64) int64 {
	level, n := int32(uint32(a[0])), uint32(a[2])
	text, ok := r.bytes(uint32(a[1]), n)
	if !ok {
		return r.outside("text")
	}
	if level < levelDebug || level > levelError {
		return r.refuse(abi.EINVAL, abi.BadRequest, "a level is 0 debug, 1 info, 2 warning or 3 error", "")
	}
	r.charge(ctx, lineUnits+r.log.add(int(level), text)*textUnits)
	return 0
}

// random fills dst.
func random(ctx context.Context, r *run, a []uint64) int64 {
	n := uint32(a[1])
	dst, ok := r.bytes(uint32(a[0]), n)
	if !ok {
		return r.outside("destination")
	}
	if n > abi.MaxRandomBytes {
		return r.refuse(abi.E2BIG, abi.TooLarge, fmt.Sprintf("at most %d random bytes at once", abi.MaxRandomBytes), "ask several times")
	}
	if err := r.random(ctx, dst); err != nil {
		return r.refuse(abi.EIO, abi.Internal, "the host has no random bytes", "")
	}
	return 0
}
