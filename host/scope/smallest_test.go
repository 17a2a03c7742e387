package scope_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/carrelhost/carrel"
	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/scope"
)

// Whatever order the services of the scopes come in, the history ends with the
// first of the scopes to close; the others find nothing of it.
func TestTheSmallestOfThreeScopesWins(t *testing.T) {
	for _, order := range []string{"RSA", "RAS", "SRA", "SAR", "ARS", "ASR", "SA", "AS", "RS", "SR"} {
		t.Run(fmt.Sprintf("in the order %s", order), func(t *testing.T) {
			inBubble(t, func(t *testing.T, d *disk, r *scope.Registry) {
				app := activate(t, d, r, chat)
				s := openSession(t, r, scope.NewSession{})
				in, leave := enter(t, r, s.ID)
				q := r.Begin(acme, "req_1")
				uses := map[rune]scope.Use{'R': request("1234"), 'S': inSession(in, "1234"), 'A': application(app, "1234")}
				for i, letter := range order {
					chatOnce(t, d, q, uses[letter], i)
				}
				chatOnce(t, d, q, application(app, "kept"), 1)
				n := int64(2 * len(order))
				if got := histories(t, d); got["1234"] != n {
					t.Fatalf("the turns make %v", got)
				}
				request, isRequest := q.Close(t.Context()), slices.Contains([]rune(order), 'R')
				leave()
				_, session, err := r.CloseSession(t.Context(), ann, s.ID)
				noError(t, err)
				byRequest, bySession := 1, 0
				if !isRequest {
					byRequest, bySession = 0, 1
				}
				if len(request.Evicted) != byRequest || len(session.Evicted) != bySession {
					t.Errorf("the request's end evicted %+v, the session's %+v", request.Evicted, session.Evicted)
				}
				if left := histories(t, d); !maps.Equal(left, map[carrel.MemoryID]int64{"kept": 2}) {
					t.Errorf("left are %v", left)
				}
			})
		})
	}
}

// A key of the request's own kind has no history of anybody else's only as
// long as no service of a longer scope, and no other request, wrote to it.
func TestTheRequestTouchesItsOwnKeyThatOthersWrote(t *testing.T) {
	own := func(id carrel.MemoryID, u scope.Use) scope.Use {
		u.Key = key(id)
		u.Key.Kind = carrel.KindRequest
		return u
	}
	for name, id := range map[string]carrel.MemoryID{
		"a longer scope of the same request": "req_1#S.m", "another request": "req_0#S.m", "a request with a longer name": "req_1x#S.m",
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t)
			r := registry(t, d, "one", nil)
			app := activate(t, d, r, chat)
			q := r.Begin(acme, "req_1")
			writer := q
			if id != "req_1#S.m" {
				writer = r.Begin(acme, "req_0")
			}
			chatOnce(t, d, writer, own(id, application(app, "")), 1)
			noError(t, q.Touch(t.Context(), own(id, request("")))) // and then the model fails
			if closed := q.Close(t.Context()); len(closed.Evicted) != 1 || len(histories(t, d)) != 0 {
				t.Errorf("the request's end evicted %+v, left are %v", closed, histories(t, d))
			}
		})
	}
}

func TestASessionScopedUseWithoutASession(t *testing.T) {
	d := newDisk(t)
	q := registry(t, d, "one", nil).Begin(acme, "req_1")
	wantCode(t, q.Touch(t.Context(), inSession(nil, "a")), abi.NoSession)
	wantCode(t, commitTo(t.Context(), q, inSession(nil, "a"), 0, 1), abi.NoSession)
	if closed := q.Close(t.Context()); closed.Evicted != nil || len(histories(t, d)) != 0 {
		t.Errorf("got %+v", closed)
	}
}
