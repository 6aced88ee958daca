package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

const page = "../../docs/command.md"

// each calls f with every command that does something, and its path.
func each(cmd *cobra.Command, f func(cmd *cobra.Command, path string)) {
	if !cmd.HasSubCommands() {
		f(cmd, cmd.CommandPath())
	}
	for _, sub := range cmd.Commands() {
		if sub.Name() != "help" && sub.Name() != "completion" {
			each(sub, f)
		}
	}
}

// examples are the lines of a text that call onceq, without what a shell does
// before and behind.
func examples(text string) []string {
	var list []string
	for _, m := range regexp.MustCompile(`(?m)^\s*(?:[^\n]*\| )?(onceq [^\n|<>]*)`).FindAllStringSubmatch(text, -1) {
		list = append(list, strings.TrimSpace(m[1]))
	}
	return list
}

// The page has an example of every command, and each example there and in the
// help can be given as it stands.
func TestExamplesCanBeGiven(t *testing.T) {
	t.Parallel()
	a := &app{getenv: os.Getenv}
	text := readFile(t, page)
	all := examples(text)
	each(a.rootCommand(), func(cmd *cobra.Command, path string) {
		if !strings.Contains(text, "\n"+path+" ") && !strings.Contains(text, "\n"+path+"\n") {
			t.Errorf("%s has no example of %s", page, path)
		}
		if len(examples(cmd.Example)) == 0 {
			t.Errorf("the help of %s has no example", path)
		}
		all = append(all, examples(cmd.Example)...)
	})
	for _, example := range all {
		if err := parse(example); err != nil {
			t.Errorf("%s: %v", example, err)
		}
	}
	if err := parse("onceq purge --everything"); err == nil {
		t.Error("an unknown flag is not found")
	}
}

// parse reads a command line as far as flags and arguments go.
func parse(line string) error {
	var words []string
	for _, m := range regexp.MustCompile(`"([^"]*)"|'([^']*)'|(\S+)`).FindAllStringSubmatch(line, -1) {
		words = append(words, m[1]+m[2]+m[3])
	}
	a := &app{getenv: os.Getenv}
	cmd, rest, err := a.rootCommand().Find(words[1:])
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if cmd.HasSubCommands() {
		return fmt.Errorf("%s does nothing by itself", cmd.CommandPath())
	}
	for _, check := range []func() error{cmd.ValidateRequiredFlags, cmd.ValidateFlagGroups, func() error { return cmd.ValidateArgs(cmd.Flags().Args()) }} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// The page lists the exit codes as they are.
func TestExitCodesAreDocumented(t *testing.T) {
	t.Parallel()
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^\| (\d) \| ([^|]+) \|`).FindAllStringSubmatch(readFile(t, page), -1) {
		got = append(got, m[1])
	}
	want := fmt.Sprint([]int{exitOK, exitFailure, exitUsage, exitConflict, exitInvalid, exitRefused, exitWarning, exitCritical})
	if fmt.Sprint(got) != want {
		t.Errorf("%s lists the exit codes %v, want %v", page, got, want)
	}
}

// Each check of doctor is explained, here and for those who keep the database.
func TestChecksAreDocumented(t *testing.T) {
	t.Parallel()
	s := newTranscript(t)
	checks := s.diagnose(exitOK, s.url())
	if len(checks) < 15 {
		t.Errorf("doctor makes %d checks", len(checks))
	}
	operations, table := readFile(t, "../../docs/operations.md"), readFile(t, page)
	for name := range checks {
		if !strings.Contains(operations, fmt.Sprintf("\n- **%s**: ", name)) {
			t.Errorf("docs/operations.md doesn't explain %s", name)
		}
		if !strings.Contains(table, fmt.Sprintf("\n| `%s` | ", name)) {
			t.Errorf("%s has no %s", page, name)
		}
	}
}
