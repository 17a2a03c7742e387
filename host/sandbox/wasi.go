package sandbox

import (
	"context"
	"encoding/binary"

	"github.com/carrelhost/carrel/abi"
)

// The errno values of WASI preview 1 that the shim answers.
const (
	wasiOK     = 0
	wasiBadF   = 8
	wasiFault  = 21
	wasiInval  = 28
	wasiIO     = 29
	wasiNoSysN = abi.WASIENOSYS
	wasiSPipe  = 70
)

// wasiFuncs are the functions of abi.WASIModule that do something, by name.
// None keeps state of its own, so that there is nothing to reset. A guest sees
// three files, 0 to 2, and no others, no arguments and no environment.
func wasiFuncs() map[string]hostFunc {
	return map[string]hostFunc{
		"args_get":          wasiNothing,
		"args_sizes_get":    wasiNoSizes,
		"environ_get":       wasiNothing,
		"environ_sizes_get": wasiNoSizes,
		"clock_res_get":     wasiClockRes,
		"clock_time_get":    wasiClockTime,
		"fd_close":          wasiFdClose,
		"fd_fdstat_get":     wasiFdStat,
		"fd_prestat_get":    wasiBadFile,
		"fd_seek":           wasiFdSeek,
		"fd_write":          wasiFdWrite,
		"poll_oneoff":       wasiPoll,
		"proc_exit":         wasiExit,
		"random_get":        wasiRandom,
		"sched_yield":       wasiNothing,
	}
}

func wasiNoSys(context.Context, *run, []uint64) int64 { return wasiNoSysN }

// wasiNothing succeeds without doing anything: that the guest came to an
// import is a place to stop it already.
func wasiNothing(context.Context, *run, []uint64) int64 { return wasiOK }

func wasiBadFile(context.Context, *run, []uint64) int64 { return wasiBadF }

// wasiNoSizes answers a count of 0 and a size of 0.
func wasiNoSizes(_ context.Context, r *run, a []uint64) int64 {
	return max(r.put32(uint32(a[0]), 0), r.put32(uint32(a[1]), 0))
}

func (r *run) put32(ptr, v uint32) int64 {
	dst, ok := r.bytes(ptr, 4)
	if !ok {
		return wasiFault
	}
	binary.LittleEndian.PutUint32(dst, v)
	return wasiOK
}

func (r *run) put64(ptr uint32, v uint64) int64 {
	dst, ok := r.bytes(ptr, 8)
	if !ok {
		return wasiFault
	}
	binary.LittleEndian.PutUint64(dst, v)
	return wasiOK
}

// The clocks of WASI. The CPU clocks run like the monotonic one.
const (
	clockRealtime = iota
	clockMonotonic
	clockProcess
	clockThread
)

func wasiClockRes(_ context.Context, r *run, a []uint64) int64 {
	if uint32(a[0]) > clockThread {
		return wasiInval
	}
	return r.put64(uint32(a[1]), 1000)
}

func wasiClockTime(_ context.Context, r *run, a []uint64) int64 {
	now, ok := r.clockNow(uint32(a[0]))
	if !ok {
		return wasiInval
	}
	return r.put64(uint32(a[2]), uint64(now))
}

func (r *run) clockNow(id uint32) (ns int64, ok bool) {
	switch id {
	case clockRealtime:
		return r.clock.wall(), true
	case clockMonotonic, clockProcess, clockThread:
		return r.clock.monotonic(), true
	default:
		return 0, false
	}
}

// wasiRandomBytes is what a guest gets at once. Libraries take a refusal for
// a broken system, so it is far more than any of them asks for.
const wasiRandomBytes = 1 << 20

func wasiRandom(ctx context.Context, r *run, a []uint64) int64 {
	dst, ok := r.bytes(uint32(a[0]), uint32(a[1]))
	switch {
	case !ok:
		return wasiFault
	case len(dst) > wasiRandomBytes:
		return wasiInval
	case r.random(ctx, dst) != nil:
		return wasiIO
	default:
		return wasiOK
	}
}

func wasiExit(_ context.Context, _ *run, a []uint64) int64 {
	code := uint32(a[0])
	panic(&stop{exit: &code})
}

// The files of WASI.

const (
	stdin = iota
	stdout
	stderr
	files
)

// wasiFdClose closes nothing: the three files are there for as long as the
// guest is, also for its second fclose.
func wasiFdClose(_ context.Context, _ *run, a []uint64) int64 {
	if uint32(a[0]) >= files {
		return wasiBadF
	}
	return wasiOK
}

func wasiFdSeek(_ context.Context, _ *run, a []uint64) int64 {
	if uint32(a[0]) >= files {
		return wasiBadF
	}
	return wasiSPipe
}

// wasiFdStat describes the three files as terminals: C libraries write lines
// to those when they end, not when a buffer is full.
func wasiFdStat(_ context.Context, r *run, a []uint64) int64 {
	const (
		size            = 24
		characterDevice = 2
		rightRead       = 1 << 1
		rightWrite      = 1 << 6
	)
	fd := uint32(a[0])
	if fd >= files {
		return wasiBadF
	}
	dst, ok := r.bytes(uint32(a[1]), size)
	if !ok {
		return wasiFault
	}
	clear(dst)
	dst[0] = characterDevice
	rights := uint64(rightWrite)
	if fd == stdin {
		rights = rightRead
	}
	binary.LittleEndian.PutUint64(dst[8:], rights)
	return wasiOK
}

const (
	// mostVectors bounds the pieces of one write; C libraries send two.
	mostVectors = 1024
	// mostWritten is how much one write takes. Of more it takes the beginning
	// and says so: the libraries of Go, Rust and C then send the rest.
	mostWritten = 1 << 20
)

// wasiFdWrite takes for written what it takes: what the log has no room for is
// dropped, because guests repeat what was not.
func wasiFdWrite(ctx context.Context, r *run, a []uint64) int64 {
	const size = 8 // of a vector: pointer and length
	fd, list, n, result := uint32(a[0]), uint32(a[1]), uint32(a[2]), uint32(a[3])
	if fd != stdout && fd != stderr {
		return wasiBadF
	}
	if n > mostVectors {
		return wasiInval
	}
	vectors, ok := r.bytes(list, n*size)
	if !ok {
		return wasiFault
	}
	r.charge(ctx, int(n)*vectorUnits)
	var total uint64
	for v := vectors; len(v) > 0; v = v[size:] {
		ptr, length := binary.LittleEndian.Uint32(v), binary.LittleEndian.Uint32(v[4:])
		if _, ok := r.bytes(ptr, length); !ok {
			return wasiFault
		}
		total += uint64(length)
	}
	left := min(total, mostWritten)
	if errno := r.put32(result, uint32(left)); errno != wasiOK {
		return errno
	}
	// The count may have been written over the vectors: a guest that does
	// that gets nonsense, but within the bounds that are checked again.
	for v := vectors; len(v) > 0 && left > 0; v = v[size:] {
		if b, ok := r.bytes(binary.LittleEndian.Uint32(v), binary.LittleEndian.Uint32(v[4:])); ok {
			b = b[:min(uint64(len(b)), left)]
			left -= uint64(len(b))
			r.print(ctx, int(fd-stdout), b)
		}
	}
	return wasiOK
}
