package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/host"
	"github.com/shirou/gopsutil/v4/load"
	"github.com/shirou/gopsutil/v4/mem"
)

// Machine is what the run was made on. Client and server share it.
type Machine struct {
	System     string            `json:"system"`
	Processor  string            `json:"processor"`
	Processors int               `json:"processors"`
	MemoryGB   float64           `json:"memory_gb"`
	LoadBefore float64           `json:"load_before"` // of the minute before the run
	Go         string            `json:"go"`
	PostgreSQL string            `json:"postgresql"`
	Settings   map[string]string `json:"settings"`
	Modules    map[string]string `json:"modules"`
}

func describe(ctx context.Context, s *server) (Machine, error) {
	m := Machine{Processors: runtime.NumCPU(), Go: runtime.Version(), Settings: settings, Modules: map[string]string{}}
	var err error
	if m.PostgreSQL, err = s.version(ctx); err != nil {
		return m, err
	}
	if h, err := host.InfoWithContext(ctx); err == nil {
		m.System = fmt.Sprintf("%s %s, %s", h.Platform, h.PlatformVersion, h.KernelArch)
	}
	if c, err := cpu.InfoWithContext(ctx); err == nil && len(c) > 0 {
		m.Processor = c[0].ModelName
	}
	if v, err := mem.VirtualMemoryWithContext(ctx); err == nil {
		m.MemoryGB = float64(v.Total>>20) / 1024
	}
	if l, err := load.AvgWithContext(ctx); err == nil {
		m.LoadBefore = l.Load1
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, d := range build.Deps {
			switch d.Path {
			case "github.com/jackc/pgx/v5", "github.com/riverqueue/river":
				m.Modules[d.Path] = d.Version
			}
		}
	}
	return m, nil
}
