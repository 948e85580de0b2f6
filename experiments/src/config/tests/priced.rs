//! The sections of a priced run: what is read, what contradicts, and the way back.

use super::refused::check;
use super::*;

/// A complete file of a priced run; the trace is not read.
pub(super) const PRICED: &str = r#"name = "ceiling"
seed = 7
record = "summary"
reference = { policy = "best-first", budget = 8 }

[backend]
kind = "sim"

[deployment]
engine = "sglang-0.5.14-b300-tp8"
model = "kimi-k2.6"
drafter = "kimi-k2.6-dflash"
tier = "table"
experts = "correlated-public-chains"
prefill = "excluded"

[workload]
concurrency = [1, 64]
context = [1024, 16384]
response = 512

[[acceptance]]
name = "GSM8K τ 5.3"
process = "kimi-k2.5-dflash"
tau = 5.3

[[acceptance]]
name = "seed, high"
process = "kimi-k2.5-dflash"
tau = { value = 6.4, policy = "best-first", budget = 16 }
variants = false

[[acceptance]]
name = "own"
trace = "traces/mini-pair.parquet"

[[policy]]
kind = "chain"
budget = [7]

[[policy]]
kind = "best-first"
budget = [8, 16]
"#;

fn priced(text: &str) -> PricedRun {
    match read(text).unwrap_or_else(|why| panic!("{why}")).backend {
        Backend::Priced(run) => *run,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_priced_run_is_read() {
    let run = priced(PRICED);
    assert_eq!((run.context, run.response), (vec![1024, 16384], Some(512)));
    assert_eq!((run.requests, run.rounds, run.arrivals), (64, 8192, ArrivalsSpec::Closed));
    assert_eq!(run.reference, Some(("best-first".to_owned(), 8)));
    let d = &run.deployment;
    assert_eq!((d.tier, d.prefill), (TierName::Table, PrefillName::Excluded));
    assert_eq!(d.experts.as_deref(), Some("correlated-public-chains"));
    assert_eq!((d.overhead_scale, d.allow_extrapolation, &d.hardware), (1.0, false, &None));
    let names: Vec<&str> = run.acceptance.iter().map(|a| a.name.as_str()).collect();
    assert_eq!(names, ["GSM8K τ 5.3", "seed, high", "own"]);
    let process = |tau, policy: &str, budget, variants| AcceptanceKind::Process {
        process: "kimi-k2.5-dflash".to_owned(),
        anchor: Some(Anchor { tau, policy: policy.to_owned(), budget }),
        variants,
    };
    assert_eq!(run.acceptance[0].source, process(5.3, "chain", None, true));
    assert_eq!(run.acceptance[1].source, process(6.4, "best-first", Some(16), false));
    let trace = Location::new("traces/mini-pair.parquet", Path::new("/somewhere/experiments"));
    assert_eq!(run.acceptance[2].source, AcceptanceKind::Trace { file: trace, stand_in: false });
}

#[test]
fn arrivals_and_whole_numbers_are_read() {
    let run = priced(&PRICED.replace("response = 512", "response = 512\narrivals = { rate = 4 }"));
    assert_eq!(run.arrivals, ArrivalsSpec::Poisson { rate: 4.0 });
    let run = priced(&PRICED.replace("tau = 5.3", "tau = 5"));
    let AcceptanceKind::Process { anchor: Some(anchor), .. } = &run.acceptance[0].source else { panic!() };
    assert_eq!(anchor.tau, 5.0);
}

/// The command line's trace stands in for the file's sources.
#[test]
fn the_command_line_may_bring_the_acceptance() {
    let overrides = Overrides { trace: Some("/somewhere/mine.parquet".into()), ..Overrides::default() };
    let e = read_with(PRICED, &overrides).unwrap();
    let Backend::Priced(run) = &e.backend else { panic!("{:?}", e.backend) };
    let trace = Location { written: "../mine.parquet".into(), path: "/somewhere/mine.parquet".into() };
    let source = AcceptanceKind::Trace { file: trace, stand_in: false };
    assert_eq!(run.acceptance, [AcceptanceSpec { name: "mine".into(), source }]);
    assert_eq!((run.response, run.context.len()), (None, 2));
    // Whatever the file's own sources need.
    let one = &PRICED[..PRICED.find("[[acceptance]]\nname = \"seed").unwrap()];
    let one = format!("{one}{}", &PRICED[PRICED.find("[[policy]]").unwrap()..]);
    assert!(read(&one).is_ok());
    let Backend::Priced(run) = &read_with(&one, &overrides).unwrap().backend else { panic!("not priced") };
    assert_eq!(run.acceptance.len(), 1);
}

#[test]
fn what_contradicts_is_refused() {
    let acceptance = &PRICED[PRICED.find("[[acceptance]]").unwrap()..PRICED.find("[[policy]]").unwrap()];
    let none = "nothing says what is accepted";
    check(PRICED, acceptance, "", none, "deployment", "there is no default source");
    let both = "a source is a trace or a process, not both";
    check(PRICED, "trace = ", "process = \"x\"\ntrace = ", both, "process", "");
    let neither = "acceptance `own` needs `trace` or `process`";
    check(PRICED, "trace = \"traces/mini-pair.parquet\"\n", "", neither, "\"own\"", "treeline profiles");
    let scaled = "`tau` is not read beside a trace";
    check(PRICED, "name = \"own\"", "name = \"own\"\ntau = 3", scaled, "tau", "replayed as it is");
    check(PRICED, "\"own\"", "\"seed, high\"", "acceptance `seed, high` is listed twice", "\"seed, high\"", "");
    let context = "a process has no context of its own: `workload.context` is missing";
    check(PRICED, "context = [1024, 16384]\n", "", context, "process", "context = [1024, 16384]");
    let response = "a process has no response of its own: `workload.response` is missing";
    check(PRICED, "response = 512\n", "", response, "process", "response = 1024");
    let unread = "`trace` is not read here";
    check(PRICED, "kind = \"sim\"", "kind = \"sim\"\ntrace = \"t\"", unread, "trace", "[[acceptance]]");
    let cost = "[cost]\ncurve = { rows = [1, 9], ms = [4.5, 9], source = \"x\" }\n\n[deployment]";
    check(PRICED, "[deployment]", cost, "two costs of a step contradict each other", "cost", "leave [cost] out");
    let live = "`sampling` is not read here";
    check(
        PRICED,
        "[workload]",
        "[sampling]\nlaw = \"greedy\"\ntemperature = [0]\n[workload]",
        live,
        "sampling",
        "from the trace",
    );
}

#[test]
fn tiers_take_their_own_keys() {
    let needs = "tier `calibrated` needs `calibration`";
    check(PRICED, "\"table\"", "\"calibrated\"", needs, "\"calibrated\"", "treeline calibrate");
    let unread = "`calibration` is not read here";
    check(PRICED, "\"table\"", "\"table\"\ncalibration = \"x\"", unread, "calibration", "tier `calibrated`");
    let unread = "`overhead_scale` is not read here";
    check(PRICED, "\"table\"", "\"bound\"\noverhead_scale = 0.5", unread, "overhead_scale", "tier `table`");
    let range = "invalid value: floating point `1.5`, expected a number from 0 (bound) to 1 (table)";
    check(PRICED, "\"table\"", "\"table\"\noverhead_scale = 1.5", range, "1.5", "");
    check(PRICED, "\"table\"", "\"tabel\"", "unknown value `tabel`", "\"tabel\"", "did you mean `table`?");
    check(PRICED, "prefill = \"excluded\"\n", "", "missing key `prefill`", "[deployment]", "");
    let tau =
        "invalid value: floating point `1.0`, expected tokens per verify step above 1 and at most 32, bonus included";
    check(PRICED, "tau = 5.3", "tau = 1", tau, "1", "");
    let policy = "no policy of this file is `best-first` with budget 9";
    check(
        PRICED,
        "budget = 8 }",
        "budget = 9 }",
        policy,
        "{ policy = \"best-first\", budget = 9 }",
        "one of the file's own cells",
    );
}

/// What only a priced run reads is refused elsewhere.
#[test]
fn other_runs_refuse_its_keys() {
    let only = "only backend `sim`";
    let section = "[[acceptance]]\nname = \"x\"\ntrace = \"t\"\n\n[[policy]]";
    check(CPU, "[[policy]]", section, "`acceptance` is not read here", "acceptance", only);
    check(SIM, "[[policy]]", section, "`acceptance` is not read here", "acceptance", "`deployment`");
    let message = "`context` is not read here";
    check(SIM, "concurrency = [4]", "concurrency = [4]\ncontext = [9]", message, "context", "`deployment`");
    check(CPU, "max_new = 96", "max_new = 96\nrounds = 1000", "`rounds` is not read here", "rounds", only);
}

#[test]
fn a_priced_run_reads_back_as_the_same_experiment() {
    for text in [
        PRICED.to_owned(),
        PRICED.replace("response = 512", "response = 512\narrivals = { rate = 4.5 }\nrounds = 300\nrequests = 9"),
        PRICED.replace("\"table\"", "\"calibrated\"\ncalibration = \"c/x.json\""),
        PRICED.replace("\"table\"", "\"bound\"\nhardware = \"my.toml\"\nallow_extrapolation = true"),
        PRICED.replace("reference = { policy = \"best-first\", budget = 8 }\n", "split = \"halves\"\n"),
    ] {
        let e = read(&text).unwrap_or_else(|why| panic!("{why}\n{text}"));
        let at = Path::new("/somewhere/runs/x");
        let resolved = resolved_toml(&e, at);
        let back = parse(&resolved, "r.toml", at, &Registry::builtin(), &Overrides::default());
        assert_eq!(back.unwrap_or_else(|why| panic!("{why}\n{resolved}")), e);
    }
}
