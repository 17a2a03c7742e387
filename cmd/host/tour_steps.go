package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/carrelhost/carrel/abi"
)

func (t *tour) oneSystemMessage(ctx context.Context) error {
	t.title("Two services, one memory id, one system message")
	if err := t.push(ctx, "nice-and-mean"); err != nil {
		return err
	}
	if _, err := t.call(ctx, "nice-and-mean/com.acme.MyChat.chat", nil, "id=42", "msg=My name is Ada"); err != nil {
		return err
	}
	second, err := t.call(ctx, "nice-and-mean/com.acme.AnotherChat.chat", nil, "id=42", "msg=What is my name?")
	if err != nil {
		return err
	}
	text := fmt.Sprint(second.Output)
	if err := check(strings.Contains(text, "My name is Ada") && !strings.Contains(text, "nice"),
		"the second call saw the first's messages, and only its own system message"); err != nil {
		return err
	}
	messages, err := t.showMemory(ctx, "nice-and-mean")
	if err != nil {
		return err
	}
	t.say("   The mean system message replaced the nice one; a history never holds two. Both services are")
	t.say("   application-scoped: the history stays when requests end and when the host restarts.")
	return check(len(messages) == 5 && messages[0].Content == "You are a mean assistant", "one system message and two turns are stored")
}

func (t *tour) defaultID(ctx context.Context) error {
	t.title("No memory id: a default one, which ends with the request")
	if err := t.push(ctx, "default-ids"); err != nil {
		return err
	}
	out, err := t.call(ctx, "default-ids/com.acme.MyChat.chat", nil, "msg=hello")
	if err != nil {
		return err
	}
	left, err := t.memory(ctx, "default-ids")
	if err != nil {
		return err
	}
	t.say("   The host made the id of the request and the method. When the request ended, its history did.")
	return check(strings.HasSuffix(out.MemoryID, "#com.acme.MyChat.chat") && len(out.Evicted) == 1 && len(left) == 0,
		"the default id ended with its request")
}

func (t *tour) ownDefaultID(ctx context.Context) error {
	t.title("A default memory id of the plugin's own, from a header")
	if err := t.push(ctx, "own-default-id"); err != nil {
		return err
	}
	const chat = "own-default-id/com.acme.MyChat.chat"
	blue := http.Header{"X-Conversation": {"blue"}}
	if _, err := t.call(ctx, chat, blue, "msg=I like tea"); err != nil {
		return err
	}
	out, err := t.call(ctx, chat, blue, "msg=What do I like?")
	if err != nil {
		return err
	}
	t.say("   Requests with the same header share a history, and other callers' headers reach others.")
	if err := check(strings.Contains(fmt.Sprint(out.Output), "I like tea"), "two requests with one header share a history"); err != nil {
		return err
	}
	_, err = t.call(ctx, chat, nil, "msg=And without the header?")
	t.say("     refused: %v", err)
	return check(code(err) == abi.DefaultIDLeak, "a call without the header is refused")
}

func (t *tour) smallestScope(ctx context.Context) error {
	t.title("Two scopes, one memory id: the smaller scope wins")
	if err := t.push(ctx, "smallest-scope"); err != nil {
		return err
	}
	if _, err := t.call(ctx, "smallest-scope/com.acme.Lasting.chat", nil, "id=7", "msg=one"); err != nil {
		return err
	}
	out, err := t.call(ctx, "smallest-scope/com.acme.Fleeting.chat", nil, "id=7", "msg=two")
	if err != nil {
		return err
	}
	left, err := t.memory(ctx, "smallest-scope")
	if err != nil {
		return err
	}
	t.say("   The request-scoped service read what the application-scoped one had stored, and by using it")
	t.say("   made it end with the request: memory lives as long as the smallest scope that touched it.")
	return check(strings.Contains(fmt.Sprint(out.Output), "one") && len(left) == 0, "the shared id ended with the request")
}

func (t *tour) window(ctx context.Context) error {
	t.title("A window of four messages over a longer history")
	if err := t.push(ctx, "short-memory"); err != nil {
		return err
	}
	var last string
	for _, msg := range []string{"msg=one", "msg=two", "msg=three"} {
		out, err := t.call(ctx, "short-memory/com.acme.Goldfish.chat", nil, "id=1", msg)
		if err != nil {
			return err
		}
		last = fmt.Sprint(out.Output)
	}
	messages, err := t.showMemory(ctx, "short-memory")
	if err != nil {
		return err
	}
	t.say("   The third call sent the system message, the second turn and the question: four messages, whole")
	t.say("   turns only. The history keeps all of them.")
	return check(!strings.Contains(last, `"one"`) && len(messages) == 7, "the window holds four messages, the history seven")
}

func (t *tour) leak(ctx context.Context) error {
	t.title("A leak, refused at upload")
	t.say("   $ carrel push examples/leak/leak.md")
	err := t.push(ctx, "leak")
	t.say("     refused: %s", strings.ReplaceAll(fmt.Sprint(err), "\n", "\n     "))
	return check(code(err) == abi.DefaultIDLeak, "an application-scoped service without a memory id is refused")
}

func (t *tour) deactivation(ctx context.Context) error {
	t.title("Deactivation closes the application scope, and its memory ends")
	t.say("   $ carrel deactivate nice-and-mean")
	done, err := t.c.Deactivate(ctx, "nice-and-mean")
	if err != nil {
		return err
	}
	for _, e := range done.Evicted {
		t.say("     ended: memory %q, %d messages (%s)", e.MemoryID, e.Messages, e.Reason)
	}
	left, err := t.memory(ctx, "nice-and-mean")
	if err != nil {
		return err
	}
	t.say("   $ carrel memory ls --plugin nice-and-mean\n     nothing is left")
	return check(len(done.Evicted) == 1 && len(left) == 0, "nothing of the plugin's memory is left")
}
