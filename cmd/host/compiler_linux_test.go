package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// held is the next compiler of a host, which is stopped as soon as it is there.
type held struct {
	pid     int           // to be read after stopped
	stopped chan struct{} // closed then, or when there was none for too long
}

// cmdCompiler stops a host's compilers: however fast a machine is, the upload
// that waits for one is seen in that stage.
func cmdCompiler(ts *testscript.TestScript, neg bool, args []string) {
	s := stageOf(ts)
	if neg || len(args) < 2 || len(args) > 3 || s.processes[args[0]] == nil {
		ts.Fatalf("usage: compiler NAME hold [N] | compiler NAME go")
	}
	p := s.processes[args[0]]
	switch args[1] {
	case "hold":
		polls := number(args[1:])
		h := &held{stopped: make(chan struct{})}
		s.held[args[0]] = h
		go h.hold(p, polls)
	case "go":
		h := s.held[args[0]]
		<-h.stopped
		if err := h.release(); err != nil {
			ts.Fatalf("let the compiler go on: %v", err)
		}
	default:
		ts.Fatalf("compiler takes hold or go, not %q", args[1])
	}
}

// hold stops the next compiler of a process. It goes on when the process has
// been asked so often how far the upload is; 0: when it is told.
func (h *held) hold(p *process, polls int) {
	defer close(h.stopped)
	end, every := time.After(patience), time.NewTicker(time.Millisecond)
	defer every.Stop()
	asked := func() int { return strings.Count(p.stderr.String(), " route=/api/v1/versions/:digest ") }
	before := 0
	for {
		select {
		case <-end:
			_ = h.release()
			return
		case <-every.C:
		}
		switch {
		case h.pid == 0:
			h.pid, before = stopCompiler(p.cmd.Process.Pid), asked()
		case polls == 0:
			return
		case asked()-before >= polls:
			_ = h.release() // it is gone if the upload is
			return
		}
	}
}

func (h *held) release() error {
	if h.pid == 0 {
		return fmt.Errorf("there was no compiler within %v", patience)
	}
	return syscall.Kill(h.pid, syscall.SIGCONT)
}

// stopCompiler stops a process's compiler and returns its id, or 0 if there is
// none.
func stopCompiler(of int) int {
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range processes {
		stat, _ := os.ReadFile(filepath.Join(dir, "stat")) // see proc(5); it may be gone
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(of) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		line, lineErr := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err == nil && lineErr == nil && strings.Contains(string(line), compileName) && syscall.Kill(pid, syscall.SIGSTOP) == nil {
			return pid
		}
	}
	return 0
}
