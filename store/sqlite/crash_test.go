package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/carrelhost/carrel/store"
	"github.com/carrelhost/carrel/store/sqlite"
)

// crashEnv makes the test binary a process that commits turns to the named
// database until it is killed.
const crashEnv = "SQLITE_TEST_CRASH"

const crashWriters = 8

// commitUntilKilled prints "<key> <turn>" after each acknowledgement.
func commitUntilKilled(path string) int {
	s, err := sqlite.Open(context.Background(), sqlite.Config{Path: path})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	failed := make(chan error)
	for w := range crashWriters {
		go func() {
			k, _ := keyOf(w)
			v, err := s.View(context.Background(), k, store.ViewLimit{Messages: 1})
			turn := 1
			if len(v.Recent) > 0 {
				turn = int(v.Recent[0].N) + 1
			}
			for ; err == nil; turn++ {
				name := fmt.Sprint(turn)
				err = tryCommit(context.Background(), s, commitOf(w, v.Generation, name, name, name))
				if err == nil {
					fmt.Printf("%d %d\n", w, turn)
				}
				if v.Generation == 0 && err == nil {
					v, err = s.View(context.Background(), k, store.ViewLimit{Messages: 0})
				}
			}
			failed <- err
		}()
	}
	fmt.Fprintln(os.Stderr, <-failed)
	return 1
}

// crash runs the process until it has acknowledged some turns, kills it, and
// returns the last acknowledged turn of each key. A line cut short by the kill
// is no acknowledgement.
func crash(t *testing.T, path string, turns int) map[int]int {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashEnv+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last := make(map[int]int)
	lines := bufio.NewReader(out)
	for n := 1; ; n++ {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		var key, turn int
		if _, err := fmt.Sscanf(strings.TrimSpace(line), "%d %d", &key, &turn); err != nil {
			t.Fatalf("the process printed %q", line)
		}
		last[key] = max(last[key], turn)
		if n == turns {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
		t.Fatalf("the process ended by itself: %v", err)
	}
	return last
}

func TestEveryAcknowledgedTurnSurvivesAKill(t *testing.T) {
	ctx := context.Background()
	path := newPath(t)
	for round := range 5 {
		acknowledged := crash(t, path, 200+50*round)
		s := open(t, sqlite.Config{Path: path})
		for w := range crashWriters {
			k, h := keyOf(w)
			v := must(s.View(ctx, k, store.ViewLimit{Messages: 0}))(t)
			if v.Generation == 0 {
				if acknowledged[w] > 0 {
					t.Errorf("key %d is gone, with %d acknowledged turns", w, acknowledged[w])
				}
				continue
			}
			history := must(s.History(ctx, acme, h, nil, store.Cutoff{}))(t)
			list := must(s.Messages(ctx, k, v.Generation, -1, store.MessageLimit{Messages: 1_000_000}))(t).Messages
			// One turn more may be there: stored, but killed before it was said.
			if turns := int(history.LastTurn); turns < acknowledged[w] || len(list) != 3*turns {
				t.Errorf("key %d has %d turns in %d messages, %d were acknowledged", w, turns, len(list), acknowledged[w])
			}
			for i, m := range list {
				if m.Content != fmt.Sprint(i/3+1) || m.Turn != int64(i/3+1) || m.Seq != int64(i+1) {
					t.Fatalf("key %d: message %d is %q, seq %d, turn %d", w, i, m.Content, m.Seq, m.Turn)
				}
			}
		}
		closeStore(t, s)
	}
}
