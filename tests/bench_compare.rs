//! The arithmetic and the command line of `cargo bench --bench gateway`.

#[path = "../benches/gateway/arguments.rs"]
mod arguments;
#[path = "../benches/gateway/goal.rs"]
mod goal;
#[path = "../benches/gateway/ratio.rs"]
mod ratio;

use arguments::{BenchArguments, RunMode};
use ratio::{Ratio, Trend};

#[track_caller]
fn check(new: &[f64], old: &[f64], median: f64, range: (f64, f64), trend: Trend) {
    let ratio = Ratio::of(new, old).map(|it| (it.median, (it.least, it.most), it.trend()));
    assert_eq!(ratio, Some((median, range, trend)));
}

#[test]
fn ratio_pairs_rounds_and_reports_median_and_range() {
    let old = [10.0, 20.0, 40.0, 10.0, 10.0];
    check(&[10.0, 20.0, 40.0, 10.0, 10.0], &old, 1.0, (1.0, 1.0), Trend::NoDifference);
    // Slow rounds slow both programs: only the ratio within a round counts.
    check(&[15.0, 30.0, 60.0, 15.0, 20.0], &old, 1.5, (1.5, 2.0), Trend::Higher);
    check(&[5.0, 10.0, 30.0, 5.0, 5.0], &old, 0.5, (0.5, 0.75), Trend::Lower);
    check(&[5.0, 30.0, 60.0, 15.0, 15.0], &old, 1.5, (0.5, 1.5), Trend::NoDifference);
}

#[test]
fn few_rounds_show_no_trend() {
    check(&[15.0, 20.0], &[10.0, 10.0], 1.75, (1.5, 2.0), Trend::NoDifference);
}

#[test]
fn zero_and_missing_rounds_are_not_comparable() {
    assert_eq!(Ratio::of(&[], &[]), None);
    assert_eq!(Ratio::of(&[1.0], &[0.0]), None);
}

#[test]
fn goals_of_a_large_home_are_met_up_to_their_limits() {
    let met = |large: [f64; 4]| {
        let figures = [[100.0, 10.0, 2.0, 50.0], large].concat();
        goal::judge(&figures).into_iter().map(|it| it.met).collect::<Vec<_>>()
    };
    assert_eq!(met([130.0, 299.0, 2.4, 60.0]), [true; 4]);
    assert_eq!(met([131.0, 300.0, 2.5, 61.0]), [false; 4]);
    assert_eq!(met([f64::NAN; 4]), [false; 4]);
    let start = &goal::judge(&[100.0, 10.0, 2.0, 50.0, 150.0, 20.0, 2.0, 50.0])[0];
    assert_eq!((start.name, start.shown.as_str()), ("start", "1.50x, at most 1.3x"));
}

fn parse(line: &str) -> Result<BenchArguments, String> {
    BenchArguments::parse(line.split_whitespace().map(str::to_owned))
}

#[test]
fn command_line_selects_run_and_workloads() {
    let workloads = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let compare = |rounds| RunMode::Compare { old: "old/petasos".into(), rounds };
    assert_eq!(parse("--bench"), Ok(BenchArguments { run: RunMode::Once, workloads: vec![] }));
    assert_eq!(
        parse("start api --bench"),
        Ok(BenchArguments { run: RunMode::Once, workloads: workloads(&["start", "api"]) })
    );
    let default = parse("--compare old/petasos --bench");
    assert_eq!(default, Ok(BenchArguments { run: compare(7), workloads: vec![] }));
    let chosen = parse("start --rounds 3 --compare old/petasos --bench");
    assert_eq!(chosen, Ok(BenchArguments { run: compare(3), workloads: workloads(&["start"]) }));
}

#[test]
fn rejects_invalid_command_lines() {
    for line in
        ["--compare", "--rounds 3", "--rounds 0 --compare x", "--rounds many --compare x", "--compere x"]
    {
        assert!(parse(line).is_err(), "{line}");
    }
}
