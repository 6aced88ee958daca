//go:build !unix

package main

import (
	"os"
	"os/exec"
	"time"
)

// endings are the signals that are passed on.
var endings = []os.Signal{os.Interrupt}

func group(*exec.Cmd) {}

// deliver ends the command: there is no gentler way here.
func deliver(cmd *exec.Cmd, _ os.Signal) { _ = cmd.Process.Kill() }

func awaitGroup(*exec.Cmd, <-chan time.Time) {}

func signalNumber(*os.ProcessState) int { return 0 }
