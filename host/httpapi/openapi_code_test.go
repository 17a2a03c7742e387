package httpapi_test

import (
	"net/http"

	"github.com/carrelhost/carrel/abi"
	"github.com/carrelhost/carrel/host/sandbox/module"
	"github.com/carrelhost/carrel/host/sandbox/wasmtest"
)

// withCode uploads a plugin with code, reads what there is to read of it, and
// removes it.
func withCode(w *witness, key string) {
	const manifest = `{"abi":"carrel/v1","name":"coded","version":"1","memoryNamespace":"pool",` +
		`"defaultMemoryId":{"export":"one","priority":-1},"capabilities":{"models":["default"],"call":["duo/*"]},` +
		`"limits":{"memoryMiB":8,"timeout":"5s"},"services":[{"name":"H","methods":[` +
		`{"name":"free","kind":"handler","export":"one"},` +
		`{"name":"typed","kind":"handler","export":"one","params":{"type":"object"},"output":{"type":"object"}},` +
		`{"name":"chat","kind":"chat","params":{"type":"object","properties":{"msg":{"type":"string"}},"required":["msg"]}}]}]}`
	m := wasmtest.New()
	write := m.Carrel("output_write")
	m.Memory(1)
	m.Data(16, []byte(`{}`))
	m.Method("one").Const(16).Const(2).Call(write).Drop().Const(0)
	wasm := module.AppendCustom(m.Bytes(), abi.ManifestSection, []byte(manifest))
	w.send("POST "+p1, p1, request{key: key, kind: "application/wasm", body: string(wasm)}, http.StatusCreated)
	with := request{key: key}
	for _, part := range []string{"", "/manifest", "/report"} {
		w.send("GET "+pVer+part, p1+"/coded/versions/1"+part, with, http.StatusOK)
	}
	for _, method := range []string{"free", "typed", "chat"} {
		w.send("GET "+pMethod, p1+"/coded/services/H/"+method, with, http.StatusOK)
	}
	w.send("POST "+pMethod, p1+"/coded/services/H/typed", asJSON(key, `{}`), http.StatusOK)
	w.send("POST "+pMethod, p1+"/coded/services/H/free", asJSON(key, `{}`), http.StatusOK)
	w.send("DELETE "+pOne, p1+"/coded", with, http.StatusOK)
}
