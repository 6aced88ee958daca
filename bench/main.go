// Command bench measures onceq beside the floor, which is the least that
// PostgreSQL can be asked to do for the same effect, and beside a peer, River, on
// one server of its own in one run.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var quick, smoke, statements bool
	var out, only, profile string
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure onceq beside the floor and beside River",
		Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := fullPlan
			switch {
			case smoke:
				p = smokePlan
			case quick:
				p = quickPlan
			}
			chosen, err := regexp.Compile(only)
			if err != nil {
				return fmt.Errorf("--only: %w", err)
			}
			p.only, p.statements = chosen, statements
			stop, err := startProfile(profile)
			if err != nil {
				return err
			}
			defer stop()
			report, err := measure(cmd.Context(), p, cmd)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), report.verdictTable().Render())
			return report.write(out)
		},
	}
	cmd.Flags().BoolVar(&quick, "quick", false, "measure less, in two minutes")
	cmd.Flags().BoolVar(&smoke, "smoke", false, "only see that everything runs, in seconds")
	cmd.Flags().StringVar(&out, "out", "results", "the `folder` for data, page and plots")
	cmd.Flags().StringVar(&only, "only", "", "measure the parts and groups whose names match this `expression`")
	cmd.Flags().StringVar(&profile, "profile", "", "write a profile of the client's processor time to this `file`")
	cmd.Flags().BoolVar(&statements, "statements", false, "show at the end what pg_stat_statements says, which costs all contenders a little")
	cmd.MarkFlagsMutuallyExclusive("quick", "smoke")
	return cmd
}

// startProfile profiles this process into a file, unless that is "".
func startProfile(path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		file.Close()
	}, nil
}

// measure runs a plan on a server of its own.
func measure(ctx context.Context, p plan, cmd *cobra.Command) (_ *Report, err error) {
	s, err := startServer(ctx, p.statements)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop(context.WithoutCancel(ctx))) }()
	report := &Report{Plan: p.Name, Began: time.Now().UTC().Truncate(time.Second)}
	if report.Machine, err = describe(ctx, s); err != nil {
		return nil, err
	}
	r := &runner{plan: p, server: s, report: report, says: cmd.ErrOrStderr()}
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	report.finish()
	if p.statements {
		t, err := s.statements(ctx)
		if err != nil {
			return nil, err
		}
		fmt.Fprintln(cmd.OutOrStdout(), t.Render())
	}
	return report, nil
}
