package carreltest_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	carrel "github.com/carrelhost/carrel/sdk/go"
	"github.com/carrelhost/carrel/sdk/go/carreltest"

	"github.com/carrelhost/carrel/abi"
)

func turn(n int) []carrel.Message {
	return []carrel.Message{carrel.User(fmt.Sprint("question ", n)), carrel.Assistant(fmt.Sprint("answer ", n))}
}

// numbered is how a history of these turns is read.
func numbered(turns ...[]carrel.Message) []carrel.Message {
	var all []carrel.Message
	for i, turn := range turns {
		for _, m := range turn {
			m.Turn = int64(i + 1)
			all = append(all, m)
		}
	}
	return all
}

func TestMemoryIsReadWrittenAndDeleted(t *testing.T) {
	ada := carrel.MemoryID("ada")
	host, err := in(t, func(h *carreltest.Host) {
		if err := h.Remember(ada, turn(0)...); err != nil {
			t.Fatal(err)
		}
	}, func(ctx *carrel.Context) error {
		m := ctx.Memory()
		for n := 1; n < 5; n++ {
			if trimmed, err := m.Append(ada, turn(n)...); err != nil || trimmed != 0 {
				t.Errorf("it trimmed %d", trimmed)
				return err
			}
		}
		got, err := m.Messages(ada)
		if want := numbered(turn(0), turn(1), turn(2), turn(3), turn(4)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, %v", got, err)
		}
		if got, err := m.Messages(carrel.MemoryID("nobody")); err != nil || len(got) != 0 {
			t.Errorf("got %v, %v", got, err)
		}
		for want := range 2 {
			if deleted, err := m.Delete(carrel.MemoryID("ada")); err != nil || deleted != (want == 0) {
				t.Errorf("got %v, %v", deleted, err)
			}
		}
		_, err = m.Append(carrel.MemoryID("bob"), turn(9)...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := host.Messages(ada); len(got) != 0 {
		t.Errorf("got %v after the history was deleted", got)
	}
	if got := host.Messages(carrel.MemoryID("bob")); !reflect.DeepEqual(got, turn(9)) {
		t.Errorf("got %v", got)
	}
}

// A turn's number is its own for as long as the history lives.
func TestOneTurnIsDeleted(t *testing.T) {
	ada := carrel.MemoryID("ada")
	host, err := in(t, func(h *carreltest.Host) {
		for n := range 3 {
			if err := h.Remember(ada, turn(n)...); err != nil {
				t.Fatal(err)
			}
		}
	}, func(ctx *carrel.Context) error {
		m := ctx.Memory()
		for n, want := range map[int64]bool{2: true, 4: false} {
			if deleted, err := m.DeleteTurn(ada, n); err != nil || deleted != want {
				t.Errorf("turn %d: got %v, %v", n, deleted, err)
			}
		}
		if deleted, err := m.DeleteTurn(carrel.MemoryID("nobody"), 1); err != nil || deleted {
			t.Errorf("of no history: got %v, %v", deleted, err)
		}
		if _, err := m.DeleteTurn(ada, 0); err == nil || refusalOf(t, err).Code != "invalid_params" {
			t.Errorf("turn 0: got %v", err)
		}
		if _, err := m.Append(ada, turn(3)...); err != nil {
			return err
		}
		got, err := m.Messages(ada)
		if want := numbered(turn(0), nil, turn(2), turn(3)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
		if deleted, err := m.DeleteTurn(ada, 2); err != nil || deleted {
			t.Errorf("again: got %v, %v", deleted, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := host.Messages(ada), slices.Concat(turn(0), turn(2), turn(3)); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The origin of a turn is the host's to say: it is read, and never sent back.
func TestTheOriginOfATurnIsReadOnly(t *testing.T) {
	theirs := turn(1)
	for i := range theirs {
		theirs[i].Origin = carrel.OriginPlugin
	}
	shared, copied := carrel.MemoryID("shared"), carrel.MemoryID("copied")
	host, err := in(t, func(h *carreltest.Host) {
		for _, messages := range [][]carrel.Message{turn(0), theirs} {
			if err := h.Remember(shared, messages...); err != nil {
				t.Fatal(err)
			}
		}
	}, func(ctx *carrel.Context) error {
		got, err := ctx.Memory().Messages(shared)
		if err != nil {
			return err
		}
		if want := numbered(turn(0), theirs); !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		_, err = ctx.Memory().Append(copied, got[2:]...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := host.Messages(copied); !reflect.DeepEqual(got, turn(1)) {
		t.Errorf("got %v", got)
	}
}

func TestOnlyWholeTurnsAreAppended(t *testing.T) {
	asks := func(ids ...string) carrel.Message {
		m := carrel.Assistant("")
		for _, id := range ids {
			m.ToolCalls = append(m.ToolCalls, carrel.ToolCall{ID: id, Name: "look", Arguments: []byte("{}")})
		}
		return m
	}
	result := func(id string) carrel.Message {
		return carrel.Message{Role: carrel.RoleTool, ToolCallID: id, Content: "found"}
	}
	user, answer := carrel.User("q"), carrel.Assistant("a")
	for name, tc := range map[string]struct {
		turn []carrel.Message
		want string // "" if it is one
	}{
		"a question and an answer":         {[]carrel.Message{user, answer}, ""},
		"results in the order of calls":    {[]carrel.Message{user, asks("2", "1"), result("2"), result("1"), answer}, ""},
		"results in another order":         {[]carrel.Message{user, asks("1", "2"), result("2"), result("1"), answer}, "messages[2]"},
		"two rounds of tools":              {[]carrel.Message{user, asks("1"), result("1"), asks("2"), result("2"), answer}, ""},
		"nothing":                          {nil, "up to the assistant's final answer"},
		"no answer":                        {[]carrel.Message{user}, "up to the assistant's final answer"},
		"no question":                      {[]carrel.Message{answer, user}, "up to the assistant's final answer"},
		"a system message":                 {[]carrel.Message{user, carrel.System("s"), answer}, "messages[1]"},
		"two turns":                        {slices.Concat(turn(1), turn(2)), "messages[2] comes after the final answer"},
		"a result that nobody asked for":   {[]carrel.Message{user, result("1"), answer}, "messages[1]"},
		"an answer before all results":     {[]carrel.Message{user, asks("1", "2"), result("1"), answer}, "messages[3]"},
		"a result that is there twice":     {[]carrel.Message{user, asks("1"), result("1"), result("1"), answer}, "messages[3]"},
		"an end in the middle of the turn": {[]carrel.Message{user, asks("1"), result("1")}, "without an answer"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := in(t, nil, func(ctx *carrel.Context) error {
				_, err := ctx.Memory().Append(carrel.MemoryID("1"), tc.turn...)
				return err
			})
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestMemoryNeedsOneName(t *testing.T) {
	for name, tc := range map[string]struct {
		ref  carrel.MemoryRef
		want abi.Errno
	}{
		"none":           {carrel.MemoryRef{}, abi.EINVAL},
		"both":           {carrel.MemoryRef{MemoryID: "1", Key: "key-001"}, abi.EINVAL},
		"an unknown key": {carrel.MemoryKey("key-999"), abi.ENOENT},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := in(t, nil, func(ctx *carrel.Context) error {
				_, err := ctx.Memory().Messages(tc.ref)
				if r := refusalOf(t, err); r.Errno != tc.want || r.Op != "memory.messages" {
					t.Errorf("got %v", r)
				}
				_, err = ctx.Memory().Delete(tc.ref)
				if r := refusalOf(t, err); r.Errno != tc.want {
					t.Errorf("got %v", r)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestListGoesThroughAllPages(t *testing.T) {
	_, err := in(t, nil, func(ctx *carrel.Context) error {
		m := ctx.Memory()
		var want []string
		for n := range 10 {
			id := fmt.Sprintf("chat-%02d", n)
			want = append(want, id)
			if _, err := m.Append(carrel.MemoryID(id), turn(n)...); err != nil {
				return err
			}
		}
		if _, err := m.Append(carrel.MemoryID("other"), turn(1)...); err != nil {
			return err
		}
		var got []string
		for h, err := range m.List("chat-") {
			if err != nil {
				return err
			}
			if h.Kind != "explicit" || h.Messages != 2 || h.Bytes != int64(len("question 0answer 0")) {
				t.Errorf("got %+v", h)
			}
			if messages, err := m.Messages(carrel.MemoryKey(h.Key)); err != nil || len(messages) != 2 {
				t.Errorf("got %v, %v", messages, err)
			}
			got = append(got, h.MemoryID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		for _, err := range m.List("") {
			return err // and so ask for no more
		}
		return errors.New("there is no first history")
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestDefaultIDsComeFromTheFirstProviderThatYieldsOne(t *testing.T) {
	own := func(id string, err error) *carrel.DefaultMemoryID {
		return &carrel.DefaultMemoryID{Func: func(*carrel.Context) (string, error) { return id, err }}
	}
	for name, tc := range map[string]struct {
		provider *carrel.DefaultMemoryID
		session  string
		want     string
	}{
		"the request's, if there is no other": {nil, "", "req-1#com.acme.Test.chat"},
		"the session's before it":             {nil, "ses-1", "ses-1#com.acme.Test.chat"},
		"the plugin's before both":            {own("mine", nil), "ses-1", "mine#com.acme.Test.chat"},
		"the subject":                         {&carrel.DefaultMemoryID{From: "subject"}, "", "ada#com.acme.Test.chat"},
		"the next if the plugin has none":     {own("", nil), "ses-1", "ses-1#com.acme.Test.chat"},
		"the plugin's after the session's":    {&carrel.DefaultMemoryID{From: "subject", Priority: 50}, "ses-1", "ses-1#com.acme.Test.chat"},
		"an error of the plugin's":            {own("", errors.New("no id today")), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := plugin(func(ctx *carrel.Context, _ struct{}) (string, error) {
				d, err := ctx.Memory().DefaultID("com.acme.Test", "chat")
				if err != nil {
					return "", err
				}
				_, err = ctx.Memory().Append(carrel.MemoryKey(d.Key), turn(1)...)
				return d.MemoryID, err
			})
			p.DefaultMemoryID = tc.provider
			h, err := carreltest.New(p)
			if err != nil {
				t.Fatal(err)
			}
			h.Info.SessionID, h.Info.Subject = tc.session, "ada"
			got, err := h.Call("run", nil)
			switch {
			case tc.want == "" && (err == nil || !strings.Contains(err.Error(), "no id today")):
				t.Errorf("got %v", err)
			case tc.want != "" && (err != nil || string(got) != tc.want):
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
			if len(h.Messages(carrel.MemoryID(tc.want))) > 0 {
				t.Error("an explicit id reaches the default history")
			}
		})
	}
}

func TestTheProviderOfDefaultIDsIsCalledAlone(t *testing.T) {
	p := plugin(double)
	p.DefaultMemoryID = &carrel.DefaultMemoryID{Func: func(ctx *carrel.Context) (string, error) {
		info, err := ctx.Info()
		return info.Subject, err
	}}
	h, err := carreltest.New(p)
	if err != nil {
		t.Fatal(err)
	}
	h.Info.Subject = "ada"
	if got, err := h.DefaultMemoryID(); err != nil || got != "ada" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := hostOf(t, double).DefaultMemoryID(); err == nil {
		t.Error("a plugin without provider has one")
	}
}

func TestDefaultIDsAreThoseOfChatMethods(t *testing.T) {
	_, err := in(t, nil, func(ctx *carrel.Context) error {
		_, err := ctx.Memory().DefaultID("com.acme.Test", "double")
		if r := refusalOf(t, err); r.Errno != abi.ENOENT {
			t.Errorf("got %v", r)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
