package httpapi_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/carrelhost/carrel/client"
	"github.com/carrelhost/carrel/internal/testenv"
)

const (
	iOne    = "/api/v1/invocations/{invocation}"
	sess    = "/api/v1/sessions"
	sOne    = sess + "/{session}"
	tickets = "/api/v1/ws-tickets"
	grant   = "/api/v1/tenant/grants/{plugin}"
)

// sessions uses sessions, tickets, grants and logs.
func sessions(w *witness, key string) {
	with := request{key: key}
	made := w.send("POST "+sess, sess, asJSON(key, `{"idleTtl":"1h","maxTtl":"2h","metadata":{"a":{"b":1}}}`), http.StatusCreated)
	id := made["id"].(string)
	w.send("POST "+sess, sess, asJSON(key, `{"idleTtl":1}`), http.StatusBadRequest)
	w.send("POST "+sess, sess, asJSON(key, `{"idleTtl":"9999h"}`), http.StatusUnprocessableEntity)
	w.send("POST "+sess, sess, asJSON(key, `{}`), http.StatusCreated)
	w.send("GET "+sess, sess+"?limit=1", with, http.StatusOK)
	w.send("GET "+sOne, sess+"/"+id, with, http.StatusOK)
	w.send("GET "+sOne, sess+"/ses_1", with, http.StatusNotFound)
	w.send("POST "+tickets, tickets, asJSON(key, `{"session":"`+id+`","origin":"https://app.example"}`), http.StatusCreated)
	w.send("POST "+tickets, tickets, asJSON(key, `{"session":"ses_1"}`), http.StatusNotFound)

	in := asJSON(key, `{"msg":"one"}`)
	in.header = http.Header{"Carrel-Session": {id}}
	w.send("POST "+pMethod, p1+"/duo/services/com.acme.Fleeting/chat", in, http.StatusOK)
	w.send("DELETE "+sOne, sess+"/"+id, with, http.StatusOK)
	w.send("DELETE "+sOne, sess+"/"+id, with, http.StatusOK)
	w.send("GET "+sOne, sess+"/"+id, with, http.StatusGone)
	w.send("POST "+tickets, tickets, asJSON(key, `{"session":"`+id+`"}`), http.StatusGone)
	w.send("POST "+pMethod, p1+"/duo/services/com.acme.Fleeting/chat", in, http.StatusGone)

	w.send("PUT "+grant, "/api/v1/tenant/grants/duo", asJSON(key, `{"call":["solo/*"]}`), http.StatusOK)
	w.send("PUT "+grant, "/api/v1/tenant/grants/duo", asJSON(key, `{"call":["*"]}`), http.StatusBadRequest)
	w.send("GET "+grant, "/api/v1/tenant/grants/duo", with, http.StatusOK)
	w.send("GET "+grant, "/api/v1/tenant/grants/solo", with, http.StatusNotFound)
	w.send("GET "+pOne+"/log", p1+"/duo/log?limit=5&after=0", with, http.StatusOK)
	w.send("GET "+pOne+"/log", p1+"/duo/log?after=x", with, http.StatusBadRequest)
}

// streams reads events, and holds each against the document, as it comes over
// HTTP and over a WebSocket.
func streams(w *witness, key string) {
	with := request{key: key, header: http.Header{"Accept": {"text/event-stream"}}}
	owner := w.env.Anyone(key)
	events := owner.Stream(w.t.Context(), "duo/com.acme.Fleeting.chat", "msg", "one").Rest()
	w.env.Model.FailNext(http.StatusBadRequest, `{}`)
	events = append(events, owner.Stream(w.t.Context(), "duo/com.acme.Fleeting.chat", "msg", "two").Rest()...)

	// A client that leaves ends its call, whose events then wait for a reader.
	defer w.env.Model.Hold()()
	n := len(w.env.Model.Calls()) + 1
	running := owner.Stream(w.t.Context(), "duo/com.acme.Fleeting.chat", "msg", "three")
	id := running.Next().Response.ID
	if err := w.env.Model.Arrived(w.t.Context(), n); err != nil {
		w.t.Fatal(err)
	}
	running.Leave()
	if err := w.env.Model.Gone(w.t.Context(), n); err != nil {
		w.t.Fatal(err)
	}
	w.send("GET "+iOne+"/events", "/api/v1/invocations/"+id+"/events?after=x", with, http.StatusBadRequest)
	w.send("GET "+iOne+"/events", "/api/v1/invocations/none/events", with, http.StatusNotFound)
	w.send("POST "+iOne+"/cancel", "/api/v1/invocations/none/cancel", with, http.StatusNotFound)
	w.send("POST "+iOne+"/cancel", "/api/v1/invocations/"+id+"/cancel", with, http.StatusOK)
	w.send("GET "+iOne+"/events", "/api/v1/invocations/"+id+"/events?after=1", with, http.StatusOK)

	w.send("GET /api/v1/ws", "/api/v1/ws", with, http.StatusBadRequest)
	w.send("GET /api/v1/ws", "/api/v1/ws?ticket=none", request{}, http.StatusUnauthorized)
	upgrade := request{key: key, header: http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="},
	}}
	w.send("GET /api/v1/ws", "/api/v1/ws", upgrade, http.StatusSwitchingProtocols)
	s := owner.Socket(client.SocketOptions{})
	for _, f := range []client.Frame{
		{Method: "duo/com.acme.Fleeting.chat", Args: map[string]string{"msg": "four"}, Timeout: "20s", OnConflict: "reject"},
		{Method: "duo/com.acme.Nobody.chat"},
	} {
		sent := f
		sent.Type, sent.ID = client.FrameInvoke, "1"
		w.valid("frame", "/components/schemas/Frame", encode(w.t, sent))
		call, err := s.Invoke(w.t.Context(), f)
		if err != nil {
			w.t.Fatal(err)
		}
		events = append(events, testenv.Watch(w.t, call.Events(w.t.Context())).Rest()...)
	}
	kinds := map[string]bool{}
	for _, e := range events {
		kinds[e.Type] = true
		w.valid("event", "/components/schemas/Event", encode(w.t, e))
	}
	if len(kinds) < 7 { // all but the incomplete one
		w.t.Errorf("only events of these types were seen: %v", kinds)
	}
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
