package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const module = "github.com/onceq/onceq"

// command is the onceq command, built for the demo.
type command struct {
	folder string
	env    []string
}

// buildCommand builds the command into a folder of its own. It will work on the
// database of url, whatever the demo's own environment says.
func buildCommand(ctx context.Context, url string) (*command, error) {
	folder, err := os.MkdirTemp("", "onceq-demo-")
	if err != nil {
		return nil, err
	}
	c := &command{folder: folder, env: []string{"ONCEQ_DATABASE_URL=" + url}}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "ONCEQ_") {
			c.env = append(c.env, v)
		}
	}
	if _, err := goTool(ctx, "build", "-o", folder+string(filepath.Separator), module+"/cmd/onceq"); err != nil {
		return nil, errors.Join(err, c.remove())
	}
	return c, nil
}

// goTool runs the go command and returns its output.
func goTool(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", args[0], err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}

func (c *command) remove() error { return os.RemoveAll(c.folder) }

// run shows the command line and runs it before the reader's eyes. It must end
// with the exit code.
func (c *command) run(ctx context.Context, p *page, code int, args ...string) error {
	p.say("$ onceq " + strings.Join(args, " "))
	return c.start(ctx, p.out, p.out, code, args)
}

// output runs the command and returns what it wrote to stdout.
func (c *command) output(ctx context.Context, code int, args ...string) (string, error) {
	var stdout bytes.Buffer
	err := c.start(ctx, &stdout, io.Discard, code, args)
	return stdout.String(), err
}

func (c *command) start(ctx context.Context, stdout, stderr io.Writer, code int, args []string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(c.folder, "onceq"), args...)
	cmd.Env = c.env
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && !errors.As(err, &exit):
		return err
	case cmd.ProcessState.ExitCode() != code:
		return fmt.Errorf("onceq %s ended with exit code %d, want %d", args[0], cmd.ProcessState.ExitCode(), code)
	}
	return nil
}
