package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/client"
)

func TestEveryCodeHasAnExitCode(t *testing.T) {
	for _, c := range abi.Codes() {
		want, ok := exits[c]
		if !ok || want == exitOK {
			t.Errorf("%v has no exit code", c)
		}
		for _, err := range []error{
			fmt.Errorf("call: %w", &client.Problem{Code: c.String()}),
			fmt.Errorf("pack: %w", carrel.Fail("test", c, "")),
		} {
			if got := exitCode(err); got != want {
				t.Errorf("%v exits with %d, want %d", err, got, want)
			}
		}
		if !strings.Contains(exitHelp, fmt.Sprintf("\n%3d  ", want)) {
			t.Errorf("the help does not explain exit code %d of %v", want, c)
		}
	}
	if len(exits) != len(abi.Codes()) {
		t.Errorf("the table has %d codes, the contract %d", len(exits), len(abi.Codes()))
	}
}

func TestExitCodesOfOtherErrors(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	get := func(err error) error {
		return &url.Error{Op: "Get", URL: "http://127.0.0.1:1/api/v1/plugins", Err: err}
	}
	for name, tc := range map[string]struct {
		err  error
		want int
		text string
	}{
		"no error is success":                               {nil, exitOK, ""},
		"wrong usage":                                       {usageError{errors.New("no")}, exitUsage, "no (see --help)"},
		"a host that does not answer":                       {fmt.Errorf("client: %w", get(dial)), exitUnreachable, "no host answers at http://127.0.0.1:1 ("},
		"a connection that broke off under a request":       {fmt.Errorf("%w: %w", client.ErrBrokenOff, get(io.EOF)), exitUnreachable, "the connection to http://127.0.0.1:1 broke off (EOF), and what was asked for may have been done"},
		"a connection that broke off in an answer":          {fmt.Errorf("read: %w", client.ErrBrokenOff), exitUnreachable, "may have been done"},
		"no host at all":                                    {fmt.Errorf("%w: no file", errNoHost), exitUnreachable, "no host is running here: no file"},
		"a signal while a request runs":                     {get(context.Canceled), exitInterrupted, "interrupted"},
		"a port that is in use, which is not the host's":    {fmt.Errorf("listen: %w", dial), exitFailed, "connection refused"},
		"a file that is not there":                          {fs.ErrNotExist, exitFailed, "file does not exist"},
		"a memory that a command did not find":              {fmt.Errorf("x: %w", errNotFound), exitNotFound, "x: not found"},
		"a problem with a code that this version is new to": {&client.Problem{Code: "from_the_future"}, exitFailed, "from_the_future"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := exitCode(tc.err); got != tc.want {
				t.Errorf("exit code %d, want %d", got, tc.want)
			}
			if tc.err != nil && !strings.Contains(textOf(tc.err), tc.text) {
				t.Errorf("text is %q, want %q in it", textOf(tc.err), tc.text)
			}
		})
	}
}
