package sandbox_test

import "github.com/carrelhost/carrel/abi"

// ruleRows are for the rules.
func ruleRows() []row {
	visited := func(guard, attack string, although ...string) row {
		return row{guard, "visited: " + attack, although}
	}
	called := func(guard, attack string, although ...string) row {
		return row{guard, "called: " + attack, although}
	}
	twice := func(guard, where string, although ...string) row {
		return row{guard, "called twice: it looks for what an earlier call left in " + where, although}
	}
	return []row{
		visited("fuel at loop headers", "it spins"),
		visited("fuel at function entries", "it recurses exponentially, without a loop"),
		visited("fuel in straight lines", "it works in a large function without calls and loops"),
		visited("only small leaves are free", "it recurses exponentially, without a loop"),
		called("the depth of calls is counted", "it recurses without an end"),
		called("the depth of calls of several results is counted", "it recurses without an end through functions of two results"),
		called("a frame counts what it does when it returns", "it works while it comes back from a deep recursion"),
		called("a frame counts its values", "it recurses without an end with three thousand values in each frame"),
		visited("memory has its price", "it reads what no cache has, for ever"),
		{"module planner.instruction: int64(i.a) >= int64(p.frame.locals)", "admitted: code that reads a local of the host's", nil},
		{"module planner.branch: int64(label) >= int64(len(p.blocks))", "admitted: code that branches to a label of the host's", []string{"a rewrite that panics is caught"}},
		{"a rewrite that panics is caught", "admitted: code that branches to a label of the host's", []string{"module planner.branch: int64(label) >= int64(len(p.blocks))"}},
		visited("memory.init is charged", "it initialises a megabyte of memory a thousand times"),
		visited("memory.copy is charged", "it copies 8 MiB a thousand times, without a loop"),
		visited("memory.fill is charged", "it fills 16 MiB a thousand times, without a loop"),
		visited("table.init is charged", "it initialises a table, without a loop"),
		visited("table.copy is charged", "it copies a table of 65,536, without a loop"),
		visited("memory.grow is charged", "it grows its memory as far as it goes, for ever"),
		visited("bulk operations are charged in proportion", "it copies a table of 65,536, without a loop"),
		visited("bulk operations are done in chunks", "it copies 8 MiB a thousand times, without a loop"),
		visited("memory.init of large segments is done in chunks", "it initialises 2 MiB of memory a thousand times"),
		visited("only small bulk operations are free", "it fills 16 MiB a thousand times, without a loop"),
		{"few bulk operations have a branch of their own", "admitted: 10,000 memory.fill and memory.copy in one body", nil},
		{"tables have a maximum", "grown: table.grow by a hundred million", []string{"module body.miscellaneous: sub == 15, sub == 17"}},
		visited("memories have a maximum", "it grows its memory as far as it goes, for ever"),
		{"the start function is not the engine's to run", "admitted: the start function spins", nil},
		{"names are cut", "named: a function with a name of a megabyte", nil},
		{"names are few", "named: twenty-nine thousand functions with long names", nil},

		twice("table.set forbids a reset", "a table, with table.set"),
		twice("table.init forbids a reset", "a table, with table.init"),
		twice("table.copy forbids a reset", "a table, with table.copy"),
		twice("elem.drop forbids a reset", "its segments of elements", "table.init forbids a reset"),
		twice("data.drop forbids a reset", "its segments of data"),
		twice("a vector in a global forbids a reset", "a global of a vector"),
		twice("a memory that grew is not used again", "the size of its memory"),
		twice("memory is set back", "its memory"),
		twice("globals are set back", "a global"),

		{"what runs has a deadline", "admitted: the start function spins", nil},
		called("fuel comes in slices", "it spins"),
		{"a slot is passed on", "called beside another: it spins", nil},
		{"one share never holds every slot", "called by one: eight calls spin at once", nil},
		called("slots are few", "eight calls spin at once"),
		{"a guest that waits has no slot", "called beside another: it sleeps for centuries", nil},
		called("a guest may have no memory", "it has no memory, and asks the host to write to it"),
		{"memory stops at its limit", "admitted: _initialize grows its memory beyond what it may have", nil},
		called("a line is cut to what there is room for", "it logs one line that is longer than the log"),
		called("an empty line is not free", "it logs empty lines for ever"),
		called("a stack is cut", "it traps below functions with names of a megabyte", "names are cut"),
		{"what the host does is charged", "called with little fuel: it asks for a megabyte of randomness all the time, without a loop", nil},
		called("a feature's name is short", asked(abi.Module, "feature")),
	}
}

func asked(module, function string) string {
	return "it asks " + module + "." + function + " for what it must not get, and is refused each time"
}

// runRows are for all that the host refuses to a guest that runs.
func runRows() []row {
	called := func(guard, attack string, although ...string) row {
		return row{"sandbox " + guard, "called: " + attack, although}
	}
	ours := func(guard, function string, although ...string) row {
		return called(guard, asked(abi.Module, function), although...)
	}
	wasi := func(guard, function string, although ...string) row {
		return called(guard, asked(abi.WASIModule, function), although...)
	}
	const (
		refuel  = "sandbox run.refuel: err != nil"
		enter   = "sandbox enter: err != nil"
		noText  = "sandbox call: len(op) == 0 || len(op) > abi.MaxOpBytes || !utf8.Valid(op)"
		noError = "sandbox errorSet: sent.Code == nil || sent.Message == nil || !guestCode(*sent.Code)"
		sleeper = "it sleeps for centuries"
	)
	return []row{
		called("run.refuel: err != nil", "it spins"),
		{"sandbox run.refuel: r.fuel >= r.cfg.Fuel", "called with little fuel: it spins", nil},
		called("run.passSlot: err != nil", "eight calls spin at once"),
		called("run.away: err != nil", sleeper, refuel, enter),
		called("enter: err != nil", "it asks for a megabyte of randomness all the time, without a loop", refuel),
		{"sandbox enter: default", "called with a host that panics: it makes host calls for ever", nil},
		{"sandbox notAtAdmission: r.admitting", "admitted: the start function asks how much time is left", nil},

		called("call: !ok", "it asks for an operation outside of its memory", noText),
		ours("call: !ok (2)", "call"),
		ours("call: len(op) == 0 || len(op) > abi.MaxOpBytes || !utf8.Valid(op)", "call"),
		ours("call: len(request) > abi.MaxRequestBytes", "call"),
		called("call: r.hostCalls >= r.cfg.HostCalls", "it makes host calls that nobody knows for ever"),
		called("call: r.results.left <= 0", "it makes host calls for ever"),
		{"sandbox call: r.host == nil", "called without a host: it makes host calls for ever", nil},
		called("call: len(result) > r.results.left", "it holds as many results as it can"),
		ours("readHandle: !ok", "read"),
		called("readHandle: !ok (2)", "it reads a result beyond its memory"),
		ours("closeHandle: !ok", "close"),
		ours("feature: !ok", "feature"),
		ours("feature: !utf8.Valid(name)", "feature"),
		ours("inputRead: !ok", "input_read"),
		ours("outputWrite: !ok", "output_write"),
		called("outputWrite: len(src) > r.outputBytes-len(r.output)", "it writes output for ever"),
		called("errorSet: !ok", "it sets an error outside of its memory", "sandbox errorSet: err != nil", noError),
		ours("errorSet: len(src) > abi.MaxGuestErrorBytes", "error_set"),
		called("errorSet: err != nil", "it sets an error that is no JSON", noError),
		ours("errorSet: sent.Code == nil || sent.Message == nil || !guestCode(*sent.Code)", "error_set"),
		ours("errorSet: len(*sent.Message) > abi.MaxGuestMessageBytes", "error_set"),
		ours("logLine: !ok", "log"),
		ours("logLine: level < levelDebug || level > levelError", "log"),
		ours("random: !ok", "random"),
		ours("random: n > abi.MaxRandomBytes", "random"),
		{"sandbox random: err != nil", "called without randomness: it needs randomness, or fails", nil},
		called("logbook.add: l.left < lineBytes", "it logs empty lines for ever"),
		called("logbook.add: len(text) > room || len(kept) < len(valid)", "it logs one line that is longer than the log"),
		called("logbook.write: l.left < lineBytes || pending.Len() > l.left", "it writes to stdout for ever without a newline"),
		called("logbook.finish: l.dropped > 0", "it logs for ever"),

		wasi("run.put32: !ok", "args_sizes_get"),
		wasi("run.put64: !ok", "clock_time_get"),
		wasi("wasiClockRes: uint32(a[0]) > clockThread", "clock_res_get"),
		wasi("wasiClockTime: !ok", "clock_time_get"),
		wasi("wasiRandom: !ok", "random_get"),
		wasi("wasiRandom: len(dst) > wasiRandomBytes", "random_get"),
		{"sandbox wasiRandom: r.random(ctx, dst) != nil", "called without randomness: it needs randomness of WASI, or fails", nil},
		wasi("wasiFdClose: uint32(a[0]) >= files", "fd_close"),
		wasi("wasiFdSeek: uint32(a[0]) >= files", "fd_seek"),
		wasi("wasiFdStat: fd >= files", "fd_fdstat_get"),
		wasi("wasiFdStat: !ok", "fd_fdstat_get"),
		wasi("wasiFdWrite: fd != stdout && fd != stderr", "fd_write"),
		wasi("wasiFdWrite: n > mostVectors", "fd_write"),
		wasi("wasiFdWrite: !ok", "fd_write"),
		wasi("wasiFdWrite: !ok (2)", "fd_write"),
		wasi("wasiPoll: n == 0 || n > mostSubscriptions", "poll_oneoff"),
		wasi("wasiPoll: !ok", "poll_oneoff"),
		wasi("wasiPoll: !ok (2)", "poll_oneoff"),
		wasi("wasiPoll: !ok (3)", "poll_oneoff"),
		wasi("run.subscription: !known", "poll_oneoff"),
		called("run.subscription: binary.LittleEndian.Uint32(b[16:]) >= files", "it waits for a file that it does not have"),

		{"sandbox Setup.complete: u.MemoryMiB < 1 || u.MemoryMiB > abi.MaxMemoryMiB", "opened in MiB: a memory and four tables of the largest beginnings", nil},
		{"sandbox Setup.complete: need > u.MemoryMiB<<20", "opened in MiB: a memory and four tables of the largest beginnings", nil},
		{"sandbox code.readExports: len(f.ParamTypes()) != 0 || !slices.Equal(f.ResultTypes(), want)", "admitted: a wake that returns nothing", nil},
		{"sandbox code.readExports: command && !c.has[abi.InitializeExport]", "admitted: a command", nil},
	}
}

// notBounds are refusals that bound no guest, and why.
func notBounds() map[string]string {
	return map[string]string{
		"sandbox Plugin.Call: !p.program.code.exports[c.Export]": "the host asks for an export",
		"sandbox Plugin.begin: p.closed":                         "the host closed the plugin",
		"sandbox Sandbox.Open: !m.HasCode()":                     "the host opens a prompt",
		"sandbox run.verdict: r.guestError != nil":               "the guest's own failure",
		"sandbox Sandbox.warm: !k.code.exports[export]":          "the host asks for an export",
		"sandbox Sandbox.bake: lacks":                            "it says what a guest that failed would need",
		"sandbox run.verdict: code != 0":                         "the guest's own failure",
	}
}
