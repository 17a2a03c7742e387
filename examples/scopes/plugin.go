// Command scopes is a plugin with one chat service per scope, and a handler
// that uses two of them in one request.
package main

import carrel "github.com/carrelhost/carrel/sdk/go"

var plugin = carrel.Plugin{
	Name:        "scopes",
	Version:     "1.0.0",
	Description: "One chat service per scope, and what happens when two of them use one memory id.",
	Services: []carrel.Service{
		chat("com.acme.AppChat", carrel.ScopeApplication),
		chat("com.acme.SessionChat", carrel.ScopeSession),
		chat("com.acme.RequestChat", carrel.ScopeRequest),
		{
			Name: "com.acme.Rest",
			Methods: []carrel.Method{
				carrel.Handler("restCall", "Calls AppChat, then RequestChat, with one memory id.", restCall),
				carrel.Handler("alternate", "Calls RequestChat with the ids 1, 2, 1, 2.", alternate),
				carrel.Handler("both", "Calls AppChat with one memory id, then with another.", both),
			},
		},
	},
}

// chat declares a chat service whose memory id is a param, required where a
// default one would leak.
func chat(name string, scope carrel.Scope) carrel.Service {
	return carrel.Service{
		Name: name, Scope: scope, SystemMessage: "You are a nice assistant",
		Methods: []carrel.Method{carrel.Chat("chat", carrel.ChatMethod{Params: chatParams{}, MemoryID: "id"})},
	}
}

type chatParams struct {
	ID  string `json:"id"`
	Msg string `json:"msg"`
}

type restParams struct {
	ID string `json:"id" desc:"the memory id that both services use"`
}

type restResult struct {
	App     string `json:"app"`     // what AppChat answered
	Request string `json:"request"` // what RequestChat answered
	Stored  int    `json:"stored"`  // messages under the id before the request ends
}

// restCall shows that the smallest scope wins. RequestChat sees the turn of
// AppChat, because the id is the same; when the request ends, the history
// does, although the application goes on.
func restCall(ctx *carrel.Context, in restParams) (restResult, error) {
	var out restResult
	if _, err := ctx.Invoke("com.acme.AppChat.chat", chatParams{in.ID, "My name is Ada"}, &out.App); err != nil {
		return out, err
	}
	if _, err := ctx.Invoke("com.acme.RequestChat.chat", chatParams{in.ID, "What is my name?"}, &out.Request); err != nil {
		return out, err
	}
	messages, err := ctx.Memory().Messages(carrel.MemoryID(in.ID))
	out.Stored = len(messages)
	return out, err
}

type alternateResult struct {
	Answers []string `json:"answers"`
}

// alternate keeps two conversations apart inside one request.
func alternate(ctx *carrel.Context, _ struct{}) (alternateResult, error) {
	var out alternateResult
	for _, say := range []chatParams{{"1", "I am one"}, {"2", "I am two"}, {"1", "Who am I?"}, {"2", "And who am I?"}} {
		var answer string
		if _, err := ctx.Invoke("com.acme.RequestChat.chat", say, &answer); err != nil {
			return out, err
		}
		out.Answers = append(out.Answers, answer)
	}
	return out, nil
}

type bothParams struct {
	First  string `json:"first" desc:"the memory id that is used first"`
	Second string `json:"second" desc:"the memory id that is used then"`
}

// both takes the turns of two memory ids in the order that the caller says.
// Requests that say opposite orders do not block each other.
func both(ctx *carrel.Context, in bothParams) (string, error) {
	var answer string
	for _, id := range []string{in.First, in.Second} {
		if _, err := ctx.Invoke("com.acme.AppChat.chat", chatParams{id, "hello"}, &answer); err != nil {
			return "", err
		}
	}
	return answer, nil
}

func main() { plugin.Main() }
