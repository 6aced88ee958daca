package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// nowhere is a database that no test reaches.
const nowhere = "postgres://nobody:hunter2-password@127.0.0.1:1/none"

func TestHelp(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"help.txt":                {"--help"},
		"help_migrate.txt":        {"migrate", "--help"},
		"help_migrate_up.txt":     {"migrate", "up", "--help"},
		"help_migrate_status.txt": {"migrate", "status", "--help"},
		"help_migrate_print.txt":  {"migrate", "print", "--help"},
		"help_enqueue.txt":        {"enqueue", "--help"},
		"help_jobs.txt":           {"jobs", "--help"},
		"help_jobs_list.txt":      {"jobs", "list", "--help"},
		"help_jobs_show.txt":      {"jobs", "show", "--help"},
		"help_jobs_cancel.txt":    {"jobs", "cancel", "--help"},
		"help_jobs_run_now.txt":   {"jobs", "run-now", "--help"},
		"help_keys.txt":           {"keys", "--help"},
		"help_keys_show.txt":      {"keys", "show", "--help"},
		"help_dead.txt":           {"dead", "--help"},
		"help_dead_list.txt":      {"dead", "list", "--help"},
		"help_dead_redrive.txt":   {"dead", "redrive", "--help"},
		"help_purge.txt":          {"purge", "--help"},
		"help_queues.txt":         {"queues", "--help"},
		"help_queues_list.txt":    {"queues", "list", "--help"},
		"help_queues_pause.txt":   {"queues", "pause", "--help"},
		"help_queues_resume.txt":  {"queues", "resume", "--help"},
		"help_queues_set.txt":     {"queues", "set", "--help"},
		"help_stats.txt":          {"stats", "--help"},
		"help_maintain.txt":       {"maintain", "--help"},
		"help_doctor.txt":         {"doctor", "--help"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := here(t, nowhere, args...).ended(t, exitOK)
			golden(t, name, c.stdout.String())
			if c.stderr.Len() > 0 {
				t.Errorf("help wrote to stderr:\n%s", c.stderr.String())
			}
			for line := range strings.Lines(withoutExamples(c.stdout.String())) {
				if n := len(strings.TrimRight(line, "\n")); n > 80 {
					t.Errorf("%v has a line of %d characters: %s", args, n, line)
				}
			}
			if group := len(args) == 2 && strings.Contains(c.stdout.String(), "Available Commands"); !group && !strings.Contains(c.stdout.String(), "Examples:\n") {
				t.Errorf("%v shows no examples", args)
			}
		})
	}
}

// withoutExamples is a help text without its examples, which stay on one line
// so that they can be copied.
func withoutExamples(text string) string {
	before, rest, _ := strings.Cut(text, "Examples:\n")
	_, after, _ := strings.Cut(rest, "\n\n")
	return before + after
}

func TestMisuse(t *testing.T) {
	t.Parallel()
	enqueue := []string{"enqueue", "--type", "t", "--key-field", "id"}
	newCommand(t, nowhere, "enqeue").ends(t, exitUsage).oneError(t, "enqeue")
	for _, tt := range []struct {
		name string
		args []string
		says string
	}{
		{"unknown command", []string{"enqeue"}, `unknown command "enqeue"`},
		{"unknown flag", []string{"migrate", "up", "--fast"}, "unknown flag: --fast"},
		{"group without a command", []string{"migrate"}, "up, status, print"},
		{"unknown command of a group", []string{"migrate", "down"}, `unknown command "down"`},
		{"an argument too many", []string{"migrate", "up", "now"}, `unknown command "now"`},
		{"no key field", []string{"enqueue", "--type", "t"}, "key-field"},
		{"no type", []string{"enqueue", "--key-field", "id"}, "type-field"},
		{"two types", append(enqueue, "--type-field", "type"), "type-field"},
		{"empty name in a path", []string{"enqueue", "--type", "t", "--key-field", "data..id"}, "--key-field"},
		{"batch of none", append(enqueue, "--batch", "0"), "--batch: 0; allowed are 1 to 1000"},
		{"batch too large", append(enqueue, "--batch", "1001"), "--batch: 1001; allowed are 1 to 1000"},
		{"no workers", append(enqueue, "--workers", "0"), "--workers: 0; allowed are 1 to 16"},
		{"no number", append(enqueue, "--priority", "high"), `invalid argument "high"`},
		{"priority out of bounds", append(enqueue, "--priority", "101"), "priority: 101; allowed are 0 to 100"},
		{"a key that never lives", append(enqueue, "--ttl", "0s"), "--ttl"},
		{"a key that lives too long", append(enqueue, "--ttl", "9000h"), "ttl: 9000h0m0s; allowed are 1ms to 365 days"},
		{"two modes", append(enqueue, "--debounce", "5s", "--throttle", "1m"), "debounce throttle"},
		{"a mode with a TTL", append(enqueue, "--debounce", "5s", "--ttl", "1h"), "debounce ttl"},
		{"a throttle with a release", append(enqueue, "--throttle", "5s", "--release", "dead"), "release throttle"},
		{"hold without debounce", append(enqueue, "--hold"), "--hold is for --debounce"},
		{"follow-up with throttle", append(enqueue, "--throttle", "5s", "--follow-up"), "--follow-up is for --debounce"},
		{"no window", append(enqueue, "--debounce", "0s"), "window: 0s; allowed are 1ms to 365 days"},
		{"no wait", append(enqueue, "--debounce", "5s", "--max-wait", "0s"), "--max-wait: 0s"},
		{"unknown release", append(enqueue, "--release", "never"), "--release: allowed are expiry, finished and dead"},
		{"bad queue", append(enqueue, "--queue", " q"), "queue: has a space at an end"},
		{"empty type", []string{"enqueue", "--type", "", "--key-field", "id"}, "type: 0 bytes"},
		{"bad tag", append(enqueue, "--tag", ""), "tag 0 has 0 characters"},
		{"no such file", append(enqueue, "--file", "missing.ndjson"), "missing.ndjson"},
		{"a job too many", []string{"jobs", "show", "a", "b"}, "the id of a job is needed"},
		{"no reason", []string{"jobs", "cancel", "a"}, `"reason" not set`},
		{"no time", []string{"jobs", "list", "--since", "soon"}, "want an instant such as"},
		{"two keys", []string{"keys", "show", "--key", "k", "--key-file", "-"}, "key-file"},
		{"no such key file", []string{"keys", "show", "--key-file", "missing.key"}, "missing.key"},
		{"no dead letter", []string{"dead", "redrive", "--request-id", "r", "--actor", "a", "--reason", "t"}, "which dead letters?"},
		{"no order", []string{"dead", "redrive", "--all"}, `"request-id", "actor", "reason" not set`},
		{"two dead letters", []string{"dead", "redrive", "a", "b", "--request-id", "r", "--actor", "a", "--reason", "t"}, "accepts at most 1 arg"},
		{"nothing to purge", []string{"purge"}, "[job queue type all]"},
		{"nothing to set", []string{"queues", "set", "q"}, "max-running"},
		{"bad schema of migrate", []string{"migrate", "up", "--schema", "Tenant"}, "schema"},
		{"bad schema of print", []string{"migrate", "print", "--schema", "pg_x"}, "pg_x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := here(t, nowhere, tt.args...).ended(t, exitUsage)
			c.oneError(t, tt.says, "--help)")
			if c.stdout.Len() > 0 {
				t.Errorf("misuse wrote to stdout:\n%s", c.stdout.String())
			}
		})
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		c := here(t, "", "completion", shell).ended(t, exitOK)
		if !strings.Contains(c.stdout.String(), "onceq") {
			t.Errorf("no completion for %s", shell)
		}
	}
	c := here(t, "", "__complete", "migrate", "").ended(t, exitOK)
	for _, name := range []string{"up\t", "status\t", "print\t"} {
		if !strings.Contains(c.stdout.String(), name) {
			t.Errorf("completion of migrate lacks %q:\n%s", name, c.stdout.String())
		}
	}
}

// Names of queues come from the database; when it can't be asked, there are none.
func TestCompletionOfQueues(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	s.open()
	complete := func(url string, args ...string) []string {
		t.Helper()
		c := newCommand(t, url, append([]string{"__complete"}, args...)...).ends(t, exitOK)
		if text := c.stderr.String(); strings.Contains(text, "error") || strings.Contains(text, "connect") {
			t.Errorf("%v: the shell would show:\n%s", args, text)
		}
		lines := strings.Split(strings.TrimSpace(c.stdout.String()), "\n")
		return lines[:len(lines)-1] // the last one is for the shell's script
	}
	for _, tt := range []struct {
		want string
		args []string
	}{
		{"default mail", []string{"purge", "--queue", ""}},
		{"mail", []string{"purge", "--queue", "m"}},
		{"default mail", []string{"jobs", "list", "--queue", ""}},
		{"default mail", []string{"dead", "redrive", "--queue", ""}},
		{"default mail", []string{"enqueue", "--queue", ""}},
		{"default mail", []string{"queues", "resume", ""}},
		{"", []string{"queues", "resume", "mail", ""}},
		{"scheduled ready running succeeded dead cancelled", []string{"jobs", "list", "--state", ""}},
		{"expiry finished dead", []string{"enqueue", "--release", ""}},
		{"", []string{"jobs", "show", ""}},
	} {
		if got := strings.Join(complete(s.url(), tt.args...), " "); got != tt.want {
			t.Errorf("completion of %v is %q, want %q", tt.args, got, tt.want)
		}
	}
	for _, url := range []string{nowhere, "", "no url"} {
		if got := complete(url, "purge", "--queue", ""); len(got) > 0 {
			t.Errorf("completion with a database out of reach is %q", got)
		}
	}
}

// bashCompletes is what bash does when a word is completed. The two functions
// stand for those of the package bash-completion.
const bashCompletes = `
_get_comp_words_by_ref() { cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=("${COMP_WORDS[@]}") cword=$COMP_CWORD; }
__ltrim_colon_completions() { :; }
compopt() { :; }
source <(onceq completion bash)
COMP_WORDS=("$@") COMP_CWORD=$(($#-1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMP_TYPE=9
__start_onceq
echo "${COMPREPLY[@]}"`

// A shell takes the script and completes with it, where there is that shell.
func TestCompletionInBash(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatalf("completion is tried in bash: %v", err)
	}
	s := newTranscript(t)
	s.open()
	folder := t.TempDir()
	program := "#!" + bash + "\nexec '" + os.Args[0] + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(folder, "onceq"), []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	for words, want := range map[string]string{
		"onceq qu":                  "queues",
		"onceq queues resume m":     "mail",
		"onceq jobs list --state d": "dead",
	} {
		c := exec.CommandContext(t.Context(), bash, append([]string{"-c", bashCompletes, "bash"}, strings.Fields(words)...)...)
		c.Env = []string{asCommand + "=1", "PATH=" + folder + ":" + os.Getenv("PATH"), "ONCEQ_DATABASE_URL=" + s.url()}
		out, err := c.CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("bash completes %q to %q (%v), want %q", words, out, err, want)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	c := newCommand(t, "", "--version").ends(t, exitOK)
	if !strings.HasPrefix(c.stdout.String(), "onceq version ") {
		t.Errorf("--version says %q", c.stdout.String())
	}
}
