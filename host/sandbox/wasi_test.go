package sandbox_test

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// words encodes 32-bit numbers as a guest's memory has them.
func words(list ...uint32) string {
	var b []byte
	for _, w := range list {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return string(b)
}

// clockSubscription is one of poll_oneoff.
func clockSubscription(userData uint64, id uint32, timeout uint64, flags uint16) string {
	b := make([]byte, 48)
	binary.LittleEndian.PutUint64(b, userData)
	binary.LittleEndian.PutUint32(b[16:], id)
	binary.LittleEndian.PutUint64(b[24:], timeout)
	binary.LittleEndian.PutUint16(b[40:], flags)
	return string(b)
}

func fileSubscription(userData uint64, kind byte, fd uint32) string {
	b := make([]byte, 48)
	binary.LittleEndian.PutUint64(b, userData)
	b[8] = kind
	binary.LittleEndian.PutUint32(b[16:], fd)
	return string(b)
}

func event(userData uint64, errno uint16, kind byte) string {
	b := make([]byte, 32)
	binary.LittleEndian.PutUint64(b, userData)
	binary.LittleEndian.PutUint16(b[8:], errno)
	b[10] = kind
	return string(b)
}

func TestWASI(t *testing.T) {
	const (
		badf  = 8
		fault = 21
		inval = 28
		nosys = 52
		spipe = 70
	)
	longAgo := uint64(1)
	for caseName, tc := range map[string]struct {
		data  map[int32]string
		steps []step
		want  []int64
		show  [2]uint32
		shown string
		log   []sandbox.LogLine
	}{
		"no arguments": {data: map[int32]string{0: words(9, 9)}, steps: []step{{"args_sizes_get", []int64{0, 4}}, {"args_get", []int64{0, 0}}, {"args_sizes_get", []int64{0, probeBytes}}, {"args_sizes_get", []int64{mostOfI32, 0}}},
			want: []int64{0, 0, fault, fault}, show: [2]uint32{0, 8}, shown: words(0, 0)},
		"no environment": {data: map[int32]string{0: words(9, 9)}, steps: []step{{"environ_sizes_get", []int64{0, 4}}, {"environ_get", []int64{0, 0}}, {"environ_sizes_get", []int64{probeBytes - 3, 0}}},
			want: []int64{0, 0, fault}, show: [2]uint32{0, 8}, shown: words(0, 0)},
		"the clocks": {steps: []step{{"clock_time_get", []int64{0, 0, 0}}, {"clock_time_get", []int64{3, 0, 8}}, {"clock_time_get", []int64{4, 0, 0}}, {"clock_time_get", []int64{0, 0, probeBytes - 7}}, {"clock_res_get", []int64{1, 16}}, {"clock_res_get", []int64{9, 16}}, {"clock_res_get", []int64{0, mostOfI32}}},
			want: []int64{0, 0, inval, fault, 0, inval, fault}, show: [2]uint32{16, 8}, shown: words(1000, 0)},
		"randomness": {steps: []step{{"random_get", []int64{0, 100}}, {"random_get", []int64{0, resultsAt}}, {"random_get", []int64{1, probeBytes}}, {"random_get", []int64{mostOfI32, mostOfI32}}}, want: []int64{0, 0, fault, fault}},
		"the three files": {data: map[int32]string{0: strings.Repeat("\xff", 48)}, steps: []step{{"fd_fdstat_get", []int64{0, 0}}, {"fd_fdstat_get", []int64{2, 24}}, {"fd_fdstat_get", []int64{3, 0}}, {"fd_fdstat_get", []int64{1, probeBytes - 23}}},
			want: []int64{0, 0, badf, fault}, show: [2]uint32{0, 48}, shown: words(2, 0, 2, 0, 0, 0) + words(2, 0, 64, 0, 0, 0)},
		"no directories": {steps: []step{{"fd_prestat_get", []int64{3, 0}}, {"fd_prestat_dir_name", []int64{3, 0, 0}}, {"path_open", []int64{3, 0, 0, 1, 0, 0, 0, 0, 0}}}, want: []int64{badf, nosys, nosys}},
		"closing and seeking": {steps: []step{{"fd_close", []int64{1}}, {"fd_close", []int64{1}}, {"fd_close", []int64{3}}, {"fd_close", []int64{mostOfI32}}, {"fd_seek", []int64{1, -1, 0, 0}}, {"fd_seek", []int64{7, 0, 0, 0}}},
			want: []int64{0, 0, badf, badf, spipe, badf}},
		"what is not there": {steps: []step{{"fd_read", []int64{0, 0, 1, 0}}, {"fd_sync", []int64{1}}, {"sock_send", []int64{1, 0, 0, 0, 0}}, {"proc_raise", []int64{9}}, {"path_unlink_file", []int64{3, 0, 1}}}, want: slices.Repeat([]int64{nosys}, 5)},
		"writing in pieces": {data: map[int32]string{0: words(100, 3, 110, 5), 100: "one", 110: " two\nthree"},
			steps: []step{{"fd_write", []int64{1, 0, 2, 200}}, {"fd_write", []int64{2, 0, 2, 200}}, {"fd_write", []int64{1, 0, 2, 200}}, {"fd_write", []int64{1, 0, 0, 200}}, {"fd_write", []int64{1, 0, 1, 200}}},
			want:  slices.Repeat([]int64{0}, 5), show: [2]uint32{200, 4}, shown: words(3),
			log: []sandbox.LogLine{{Level: 1, Text: "one two"}, {Level: 2, Text: "one two"}, {Level: 1, Text: "one two"}, {Level: 1, Text: "one"}}},
		"writing bytes that are no text": {data: map[int32]string{0: words(100, 3), 100: "a\xffb"}, steps: []step{{"fd_write", []int64{1, 0, 1, 200}}}, want: []int64{0}, log: []sandbox.LogLine{{Level: 1, Text: "a\ufffdb"}}},
		"writing to other files, or from outside": {data: map[int32]string{0: words(100, 3, probeBytes, 1), 16: words(mostOfI32, mostOfI32), 24: words(0, mostOfI32)},
			steps: []step{{"fd_write", []int64{0, 0, 1, 200}}, {"fd_write", []int64{3, 0, 1, 200}}, {"fd_write", []int64{1, 0, 2, 200}}, {"fd_write", []int64{1, 16, 1, 200}}, {"fd_write", []int64{1, 24, 1, 200}}, {"fd_write", []int64{1, probeBytes - 4, 1, 200}},
				{"fd_write", []int64{1, 0, 1025, 200}}, {"fd_write", []int64{1, 0, mostOfI32, 200}}, {"fd_write", []int64{1, 0, 0x20000001, 200}}, {"fd_write", []int64{1, 0, 1, probeBytes - 3}}},
			want: []int64{badf, badf, fault, fault, fault, fault, inval, inval, inval, fault}},
		"a count over the vectors": {data: map[int32]string{0: words(100, 3), 100: "one"}, steps: []step{{"fd_write", []int64{1, 0, 1, 4}}}, want: []int64{0}, log: []sandbox.LogLine{{Level: 1, Text: "one"}}},
		"polling what is ready": {data: map[int32]string{0: clockSubscription(7, 1, 1<<62, 0) + fileSubscription(8, 1, 0) + fileSubscription(9, 2, 1) + fileSubscription(10, 1, 3) + clockSubscription(11, 9, 0, 0) + clockSubscription(12, 0, longAgo, 1)},
			steps: []step{{"poll_oneoff", []int64{0, 1000, 6, 900}}, {"poll_oneoff", []int64{0, 1160, 0, 900}}}, want: []int64{0, inval}, show: [2]uint32{1000, 160},
			shown: event(8, 0, 1) + event(9, 0, 2) + event(10, badf, 1) + event(11, inval, 0) + event(12, 0, 0)},
		"polling twice at once for the shortest": {data: map[int32]string{0: clockSubscription(1, 1, 2_000_000, 0) + clockSubscription(2, 0, 1<<60, 0) + clockSubscription(3, 1, 1_000_000, 0)},
			steps: []step{{"poll_oneoff", []int64{0, 1000, 3, 900}}}, want: []int64{0}, show: [2]uint32{900, 4}, shown: words(1)},
		"polling from outside or too much": {data: map[int32]string{0: clockSubscription(1, 1, 0, 0), 48: fileSubscription(1, 9, 0)},
			steps: []step{{"poll_oneoff", []int64{probeBytes - 47, 1000, 1, 900}}, {"poll_oneoff", []int64{0, probeBytes - 31, 1, 900}}, {"poll_oneoff", []int64{0, 1000, 1, probeBytes - 3}}, {"poll_oneoff", []int64{0, 1000, 1025, 900}},
				{"poll_oneoff", []int64{0, 1000, mostOfI32, 900}}, {"poll_oneoff", []int64{48, 1000, 1, 900}}, {"poll_oneoff", []int64{0, 1000, 0x05555556, 900}}},
			want: []int64{fault, fault, fault, inval, inval, inval, inval}},
		"yielding": {steps: []step{{"sched_yield", nil}}, want: []int64{0}},
	} {
		t.Run(caseName, func(t *testing.T) {
			p := &probe{module: abi.WASIModule, data: tc.data, steps: tc.steps, show: tc.show}
			got := p.run(t)
			if got.err != nil {
				t.Fatal(got.err)
			}
			if !slices.Equal(got.values, tc.want) {
				t.Errorf("got %d, want %d", got.values, tc.want)
			}
			if string(got.memory) != tc.shown {
				t.Errorf("the memory has\n%x, want\n%x", got.memory, tc.shown)
			}
			if !slices.Equal(got.result.Log, tc.log) {
				t.Errorf("the log has %v, want %v", got.result.Log, tc.log)
			}
		})
	}
}

func TestRandomnessForWASIHasACap(t *testing.T) {
	m := wasmtest.New()
	random := m.WASI("random_get")
	m.Memory(17)
	m.Method("run").Const(0).Const(1 << 20).Call(random).Const(0).Const(1<<20 + 1).Call(random).Const(28).Sub().Add()
	if _, err := open(t, newSandbox(t, sandbox.Config{}), m.Bytes()).Call(t.Context(), sandbox.Call{Export: "run"}); err != nil {
		t.Error(err)
	}
}

// TestSleepsKeepNoSlot has two guests that sleep longer than the test lasts,
// and one that works meanwhile, on one slot.
func TestSleepsKeepNoSlot(t *testing.T) {
	s := newSandbox(t, sandbox.Config{Slots: 1})
	sleeper := open(t, s, hostileModule(sleep(0)))
	ctx, cancel := context.WithCancel(t.Context())
	asleep := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := sleeper.Call(ctx, sandbox.Call{Export: "run"})
			asleep <- err
		}()
	}
	for range 50 {
		if _, err := sleeper.Call(t.Context(), sandbox.Call{Export: "fine"}); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	cancel()
	for range 2 {
		if err := <-asleep; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	if d := time.Since(start); d > late {
		t.Errorf("the sleepers ended after %v", d)
	}
}

// TestModulesWithoutMemory checks that pointers go nowhere.
func TestModulesWithoutMemory(t *testing.T) {
	m := wasmtest.New()
	write, last, random := m.Carrel("output_write"), m.Carrel("last_error"), m.WASI("random_get")
	m.Method("run").Const(0).Const(0).Call(write).Const(1).Add(). // -EINVAL + 1
									Const(0).Const(0).Call(last).Const(1).Add().Add().
									Const(0).Const(0).Call(random).Const(21).Sub().Add()
	if _, err := open(t, newSandbox(t, sandbox.Config{}), m.Bytes()).Call(t.Context(), sandbox.Call{Export: "run"}); err != nil {
		t.Error(err)
	}
}

func FuzzWASI(f *testing.F) {
	funcs := abi.WASIImports()
	for i := range funcs {
		f.Add(uint8(i), uint32(1), uint32(0), uint32(1), uint32(8), "\x40\x00\x00\x00\x02\x00\x00\x00")
	}
	f.Add(uint8(0), uint32(mostOfI32), uint32(mostOfI32), uint32(mostOfI32), uint32(mostOfI32), "")
	s := newSandbox(f, sandbox.Config{})
	f.Fuzz(func(t *testing.T, which uint8, a, b, c, d uint32, memory string) {
		fn := funcs[int(which)%len(funcs)]
		args := []int64{int64(a), int64(b), int64(c), int64(d), 0, 0, 0, 0, 0}[:len(fn.Params)]
		p := &probe{module: abi.WASIModule, data: map[int32]string{0: memory[:min(len(memory), sandbox.PageBytes)]}, steps: []step{{fn.Name, args}}}
		plugin := open(t, s, p.bytes())
		defer closing(t, plugin)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := plugin.Call(ctx, sandbox.Call{Export: "run", Host: &host{}})
		if err != nil && !errors.Is(err, context.DeadlineExceeded) && fn.Name != "proc_exit" {
			t.Errorf("%s%d: %v", fn.Name, args, err)
		}
	})
}
