package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox"
	corpus "github.com/carrelhost/carrel/host/sandbox/hostile"
	"github.com/carrelhost/carrel/host/sandbox/module"
)

// The environment of a process that shows whether cases of the corpus are
// held: the cases, a line each, and the names of the guards that are knocked
// out in it, if it is of a copy of the source.
const (
	heldEnv       = "CARREL_TEST_HELD"
	knockedOutEnv = "CARREL_TEST_KNOCKED_OUT"
)

// When a case is given up: with all guards in place, and with one knocked out.
// A guest that does not come to the host freezes the whole process at the next
// garbage collection, so there is none, as long as there is memory.
const (
	givenUpAfter = 10 * time.Second
	frozenAfter  = 1500 * time.Millisecond
)

// heldVerdict is that of a case that is held; others say why it is not.
const (
	heldVerdict = "held"
	unknownCase = 64 // the exit code
)

// showHeld is that process: it prints a verdict for each case.
func showHeld(cases []string) {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(1 << 30)
	boundMemory(8 << 30)
	modules := map[string]corpus.Module{}
	for _, m := range corpus.Modules() {
		modules[m.Name] = m
	}
	attacks := map[string]corpus.Attack{}
	for _, a := range corpus.Attacks() {
		attacks[a.Name] = a
	}
	for _, line := range cases {
		how, name, _ := strings.Cut(line, ": ")
		most := givenUpAfter
		if os.Getenv(knockedOutEnv) != "" {
			most = frozenAfter
		}
		late := time.AfterFunc(most, func() {
			fmt.Println("it does not end")
			os.Exit(0)
		})
		m, isModule := modules[name]
		a, isAttack := attacks[name]
		judge, judgeCall := ofModule()[how], ofAttack()[how]
		switch {
		case isModule && judge != nil:
			fmt.Println(verdict(func() error { return judge(m) }))
		case isAttack && judgeCall != nil:
			fmt.Println(verdict(func() error { return judgeCall(a) }))
		default:
			fmt.Println("there is no such case: " + line)
			os.Exit(unknownCase)
		}
		late.Stop()
		debug.FreeOSMemory()
	}
}

func verdict(judge func() error) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprintf("it panicked: %v", v)
		}
	}()
	if err := judge(); err != nil {
		return strings.ReplaceAll(err.Error(), "\n", " ")
	}
	return heldVerdict
}

// ofModule are the ways to judge an upload.
func ofModule() map[string]func(corpus.Module) error {
	return map[string]func(corpus.Module) error{
		"inspected": inspected,
		"refused": func(m corpus.Module) error {
			if _, err := inspect(m.Bytes()); err == nil {
				return errors.New("it was accepted")
			}
			return nil
		},
		"named": namesAreShort,
		"admitted": func(m corpus.Module) error {
			return admitted(m, sandbox.Config{AdmitTimeout: 300 * time.Millisecond})
		},
		"grown":         tablesStayAsTheyAre,
		"opened in MiB": openedIn,
	}
}

// refusedAs says how an error differs from the refusal that is right.
func refusedAs(m corpus.Module, err error) error {
	code, limit := m.Code, m.Limit
	if code == abi.TooLarge { // the host's own limit is looked at before it
		code, limit = abi.LimitExceeded, "module.bytes"
	}
	if err == nil && code != abi.OK {
		return errors.New("it was accepted")
	}
	got := ""
	if e, ok := errors.AsType[*carrel.Error](err); ok {
		got = e.Limit
	}
	if carrel.CodeOf(err) != code || got != limit {
		return fmt.Errorf("it was not refused as it should be, but: %w", err)
	}
	return nil
}

// inspected holds an upload against what looks at it before any engine.
func inspected(m corpus.Module) error {
	_, err := inspect(m.Bytes())
	return refusedAs(m, err)
}

// inspect is what happens to an upload before an engine sees it.
func inspect(b []byte) (*module.Rewritten, error) {
	m, err := module.Read(b, module.DefaultLimits())
	if err != nil {
		return nil, err
	}
	if err := module.Lint(m, module.DefaultLimits()); err != nil {
		return nil, err
	}
	return module.Rewrite(m, sandbox.RewriteOptions())
}

// namesAreShort holds the names of functions against what is kept of them.
func namesAreShort(m corpus.Module) error {
	w, err := inspect(m.Bytes())
	if err != nil {
		return err
	}
	all := 0
	for _, name := range w.Names {
		if all += len(name); len(name) > 256 || all > module.DefaultNameBytes {
			return fmt.Errorf("names of %d bytes are kept, one of them of %d", all, len(name))
		}
	}
	return nil
}

// admitted holds an upload against admission, and opens what is admitted.
func admitted(m corpus.Module, cfg sandbox.Config) (err error) {
	s, err := sandbox.New(context.Background(), cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	b := m.Bytes()
	start := used()
	_, err = s.Admit(context.Background(), sandbox.Candidate{Module: b})
	if took := used() - start; took > 2*time.Second {
		return fmt.Errorf("its admission computed for %v", took)
	}
	return refusedAs(m, err)
}

// openedIn opens an upload with less memory than it begins with.
func openedIn(m corpus.Module) (err error) {
	s, err := sandbox.New(context.Background(), sandbox.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for _, mib := range []int{-1, 1, abi.MaxMemoryMiB + 1} {
		_, err := s.Open(context.Background(), m.Bytes(), sandbox.Setup{MemoryMiB: mib})
		if e, ok := errors.AsType[*carrel.Error](err); !ok || e.Limit != "memoryMiB" {
			return fmt.Errorf("in %d MiB: %w", mib, err)
		}
	}
	return nil
}
