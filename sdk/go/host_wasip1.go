package carrel

import (
	"encoding/json"
	"time"
	"unsafe"

	"github.com/carrelhost/carrel/abi"
)

//go:wasmimport carrel/v1 input_len
func inputLen() int32

//go:wasmimport carrel/v1 input_read
func inputRead(dst unsafe.Pointer, off, n int32) int32

//go:wasmimport carrel/v1 output_write
func outputWrite(ptr unsafe.Pointer, n int32) int32

//go:wasmimport carrel/v1 error_set
func errorSet(ptr unsafe.Pointer, n int32) int32

//go:wasmimport carrel/v1 emit
func emit(kind int32, ptr unsafe.Pointer, n int32) int32

//go:wasmimport carrel/v1 call
func call(op unsafe.Pointer, opn int32, req unsafe.Pointer, reqn int32) int64

//go:wasmimport carrel/v1 read
func read(h, off int32, dst unsafe.Pointer, n int32) int32

//go:wasmimport carrel/v1 close
func closeHandle(h int32) int32

//go:wasmimport carrel/v1 last_error
func lastError(dst unsafe.Pointer, n int32) int32

//go:wasmimport carrel/v1 log
func log(level int32, ptr unsafe.Pointer, n int32) int32

//go:wasmimport carrel/v1 deadline_ms
func deadlineMS() int64

//go:wasmimport carrel/v1 random
func random(dst unsafe.Pointer, n int32) int32

//go:wasmimport carrel/v1 feature
func feature(ptr unsafe.Pointer, n int32) int32

// Export runs a handler in a guest. The generated exports call it.
func (p Plugin) Export(name string) int32 { return p.Run(guestHost{}, name) }

// DescribeExport is the guest's export carrel_describe.
func (p Plugin) DescribeExport() int32 { return p.Describe(guestHost{}) }

// guestHost is the host as its guest sees it: the imports.
type guestHost struct{}

// bytesOf returns the address and the length of bytes, for one import. The
// import keeps the memory alive while it runs.
func bytesOf(b []byte) (unsafe.Pointer, int32) {
	return unsafe.Pointer(unsafe.SliceData(b)), int32(len(b)) //nolint:gosec // imports take addresses
}

func textOf(s string) (unsafe.Pointer, int32) {
	return unsafe.Pointer(unsafe.StringData(s)), int32(len(s)) //nolint:gosec // imports take addresses, and do not write to this one
}

// readAll fills a buffer of n bytes by an import that copies from an offset
// and may copy less than is asked for.
func readAll(what string, n int32, from func(dst unsafe.Pointer, off, n int32) int32) ([]byte, error) {
	b := make([]byte, n)
	for off := int32(0); off < n; {
		dst, left := bytesOf(b[off:])
		got := from(dst, off, left)
		if got < 0 {
			return nil, refused(what, got)
		}
		if got == 0 || got > left {
			return nil, &Refusal{Op: what, Errno: abi.EIO, Message: "the host's bytes ended early"}
		}
		off += got
	}
	return b, nil
}

func (guestHost) Input() ([]byte, error) {
	n := inputLen()
	if n < 0 {
		return nil, refused("input_len", n)
	}
	return readAll("input_read", n, inputRead)
}

func (guestHost) Output(b []byte) error {
	ptr, n := bytesOf(b)
	return check("output_write", outputWrite(ptr, n))
}

func (guestHost) Fail(code, message string) {
	b, err := encode(struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}{code, message})
	if err != nil {
		return // two strings always have a JSON form
	}
	ptr, n := bytesOf(b)
	if errorSet(ptr, n) < 0 { // in a warm-up, whose failure nobody but the author hears of
		const warning = 2
		guestHost{}.Log(warning, code+": "+message)
	}
}

func (guestHost) Emit(kind EmitKind, b []byte) error {
	ptr, n := bytesOf(b)
	return check("emit", emit(int32(kind), ptr, n))
}

func (guestHost) Call(op abi.Op, request []byte) ([]byte, error) {
	name, nameLen := textOf(string(op))
	req, reqLen := bytesOf(request)
	r := call(name, nameLen, req, reqLen)
	if r < 0 {
		return nil, refused(string(op), int32(r))
	}
	h := int32(r >> 32)
	defer closeHandle(h)
	return readAll(string(op), int32(r), func(dst unsafe.Pointer, off, n int32) int32 { return read(h, off, dst, n) })
}

func (guestHost) Log(level int, text string) {
	ptr, n := textOf(text)
	log(int32(level), ptr, n)
}

// Deadline is an hour away where there is none: in a warm-up, which has no
// answer to deadline_ms, and in calls without one.
func (guestHost) Deadline() time.Time {
	left := time.Hour
	if ms := deadlineMS(); ms >= 0 && ms < left.Milliseconds() {
		left = time.Duration(ms) * time.Millisecond
	}
	return time.Now().Add(left)
}

func (guestHost) Random(b []byte) error {
	ptr, n := bytesOf(b)
	return check("random", random(ptr, n))
}

func (guestHost) Has(name string) bool {
	ptr, n := textOf(name)
	return feature(ptr, n) == 1
}

func check(what string, result int32) error {
	if result < 0 {
		return refused(what, result)
	}
	return nil
}

// refusalBytes is enough for what a host tells of most refusals.
const refusalBytes = 2048

// refused asks the host about the refusal that it has just answered with.
func refused(what string, result int32) error {
	r := &Refusal{Op: what, Errno: abi.Errno(-result)}
	b := make([]byte, refusalBytes)
	n := lastError(bytesOf(b))
	if int(n) > len(b) { // the whole length: ask again with room for it
		b = make([]byte, n)
		n = lastError(bytesOf(b))
	}
	var told struct{ Code, Message, Remedy string }
	if n > 0 && int(n) <= len(b) && json.Unmarshal(b[:n], &told) == nil {
		r.Code, r.Message, r.Remedy = told.Code, told.Message, told.Remedy
	}
	return r
}
