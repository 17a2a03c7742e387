package httpapi_test

import (
	"io"
	"net/http"
	"strings"

	"github.com/carrelhost/carrel/client"
)

// byHand reads, copies and shortens the histories of duo's first version, and
// erases a subject.
func byHand(w *witness, key string) {
	const list = "/api/v1/memories"
	with := request{key: key}
	page := w.send("GET "+list, list+"?plugin=duo&prefix=1", with, http.StatusOK)
	one := list + "/" + page["data"].([]any)[0].(node)["key"].(string)
	w.send("GET "+mOne+"/messages", one+"/messages?view=window&method=com.acme.Lasting.chat", with, http.StatusOK)
	w.send("GET "+mOne+"/messages", one+"/messages?view=window", with, http.StatusBadRequest)
	w.send("GET "+mOne+"/messages", one+"/messages?view=window&method=com.acme.Lasting.swim", with, http.StatusNotFound)

	w.send("GET "+mOne+"/export", one+"/export", with, http.StatusOK)
	w.send("GET "+mOne+"/export", list+"/AAAAAAAAAAAAAAAAAAAAAA/export", with, http.StatusNotFound)
	history := lines(w, one+"/export", key)
	file := request{key: key, kind: client.HistoryType, body: history}
	const imports = list + "/import"
	made := w.send("POST "+imports, imports+"?memoryId=copy", file, http.StatusCreated)
	w.send("POST "+imports, imports+"?memoryId=copy", file, http.StatusConflict)
	w.send("POST "+imports, imports+"?plugin=solo", file, http.StatusNotFound)
	w.send("POST "+imports, imports, asJSON(key, `{}`), http.StatusUnsupportedMediaType)
	file.body = strings.Repeat(" ", importBytes+1)
	w.send("POST "+imports, imports, file, http.StatusRequestEntityTooLarge)
	file.body = strings.Split(history, "\n")[0]
	w.send("POST "+imports, imports, file, http.StatusUnprocessableEntity)

	copied := list + "/" + made["key"].(string)
	w.send("GET "+mOne+"/messages", copied+"/messages", with, http.StatusOK) // origin is import
	w.send("DELETE "+mOne+"/turns/{turn}", copied+"/turns/1", with, http.StatusNoContent)
	w.send("DELETE "+mOne+"/turns/{turn}", copied+"/turns/1", with, http.StatusNotFound)
	w.send("DELETE "+mOne, copied, with, http.StatusOK)

	const erase = "/api/v1/subjects/erase"
	w.send("POST "+erase, erase, asJSON(key, `{"subject":"ada"}`), http.StatusOK)
	w.send("POST "+erase, erase, asJSON(key, `{"subject":""}`), http.StatusBadRequest)
	const evictions = "/api/v1/evictions"
	w.send("GET "+evictions, evictions+"?since=2026-01-01T00:00:00Z", with, http.StatusOK)
	w.send("GET "+evictions, evictions+"?since=today", with, http.StatusBadRequest)
}

// lines returns an export, each line of which is as the document says.
func lines(w *witness, path, key string) string {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.env.Addr()+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // a body that was read
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	schema := "/paths/" + escaped(mOne+"/export") + "/get/responses/200/content/" + escaped(client.HistoryType) + "/schema"
	all := strings.Split(strings.TrimSuffix(string(body), "\n"), "\n")
	if len(all) < 3 {
		w.t.Errorf("the export has %d lines", len(all))
	}
	for _, line := range all {
		w.valid("a line of an export", schema, []byte(line))
	}
	return string(body)
}
