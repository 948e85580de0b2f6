//! Whose counts a file holds, files as editors leave them, and positions that were never accepted.

use super::*;

/// A scrape of a server with two models, whose names hold what labels escape or separate with.
fn two() -> String {
    let other =
        SCRAPE.replace("model_name=\"m\"", "model_name=\"org/b,position=\\\"9\\\"\"").replace("1000.0", "2000.0");
    format!("{SCRAPE}{other}")
}

#[test]
fn counters_of_two_models_are_never_summed() {
    let (_keep, path) = file("metrics.txt", &two());
    let said = vllm(&path, None, None).unwrap_err().to_string();
    assert!(said.contains("2 models: m, org/b") && said.contains("--model NAME"), "{said}");
    let one = vllm(&path, None, Some("m")).unwrap();
    assert_eq!((one.drafts, one.accepted.as_slice()), (1000, &[800, 600, 300][..]));
    assert!(one.notes.iter().any(|n| n == "model m of 2"), "{:?}", one.notes);
    let other = vllm(&path, None, Some("org/b,position=\\\"9\\\"")).unwrap();
    assert_eq!((other.drafts, other.accepted.as_slice()), (2000, &[800, 600, 300][..]));
    let said = vllm(&path, None, Some("n")).unwrap_err().to_string();
    assert!(said.contains("nothing of model `n`") && said.contains("it has m, "), "{said}");
    let p = to_process(&one, "mine", &like(), None, &path).unwrap();
    assert!(p.conditional.source.contains("model m of 2"));

    // An earlier scrape is of the same model.
    let (_keep, earlier) = file("before.txt", &two().replace("1000.0", "400.0").replace("800.0", "700.0"));
    let text = |p: &Path| std::fs::read_to_string(p).unwrap().replace("_accepted_tokens_total", "_other_total");
    for p in [&path, &earlier] {
        std::fs::write(p, text(p)).unwrap();
    }
    assert!(vllm(&path, Some(&earlier), None).unwrap_err().to_string().contains("--model"));
    let since = vllm(&path, Some(&earlier), Some("m")).unwrap();
    assert_eq!((since.drafts, since.accepted.as_slice()), (600, &[100, 0, 0][..]));
    assert!(since.notes.iter().any(|n| n == "model m of 2"));

    // Two engines of one model are summed, as before.
    let engines = format!("{SCRAPE}{}", SCRAPE.replace("engine=\"0\"", "engine=\"1\""));
    let (_keep, path) = file("metrics.txt", &engines);
    assert_eq!(vllm(&path, None, None).unwrap().drafts, 2000);
}

#[test]
fn sglang_of_two_models_is_never_averaged() {
    let gauge = |m: &str, v: f64| format!("sglang:spec_accept_length{{model_name=\"{m}\",tp=\"0\"}} {v}\n");
    let (_keep, path) = file("metrics", &format!("{}{}", gauge("a", 3.0), gauge("b", 5.0)));
    let said = sglang(&path, None).unwrap_err().to_string();
    assert!(said.contains("2 models: a, b"), "{said}");
    assert_eq!(sglang(&path, Some("b")).unwrap().tau, Some(5.0));
    assert!(sglang(&path, Some("c")).unwrap_err().to_string().contains("it has a, b"));

    let response =
        |m: &str, h: &str| format!("{{\"model\": {m:?}, \"meta_info\": {{\"spec_accept_histogram\": {h}}}}}\n");
    let (_keep, path) = file("r.jsonl", &format!("{}{}", response("a", "[5, 5]"), response("b", "[1, 9]")));
    assert!(sglang(&path, None).unwrap_err().to_string().contains("2 models: a, b"));
    let one = sglang(&path, Some("b")).unwrap();
    assert_eq!((one.drafts, one.accepted.as_slice()), (10, &[9][..]));
    // Without names there is nothing to choose.
    let (_keep, path) = file("r.json", "{\"spec_accept_histogram\": [5, 5]}");
    assert!(sglang(&path, Some("a")).unwrap_err().to_string().contains("leave --model out"));
    let (_keep, path) = file("x.log", "accept len: 3.00\n");
    assert!(sglang(&path, Some("a")).unwrap_err().to_string().contains("a log"));
    let (_keep, path) = file("metrics", "sglang:num_running_reqs 2\n");
    assert!(sglang(&path, Some("a")).unwrap_err().to_string().contains("holds neither"));
}

/// A byte order mark and line ends of either kind change nothing.
#[test]
fn files_as_editors_leave_them() {
    let marked = |text: &str| format!("\u{feff}{}", text.replace('\n', "\r\n"));
    let (_keep, path) = file("metrics.txt", &marked(SCRAPE));
    assert_eq!(vllm(&path, None, None).unwrap().accepted, [800, 600, 300]);
    let (_keep, path) = file("r.json", &marked("[{\"spec_accept_histogram\": [5, 5]}]\n"));
    assert_eq!(sglang(&path, None).unwrap().drafts, 10);
    let (_keep, path) =
        file("r.jsonl", &marked("{\"spec_accept_histogram\": [5, 5]}\n{\"spec_accept_histogram\": [5, 5]}\n"));
    assert_eq!(sglang(&path, None).unwrap().drafts, 20);
    let (_keep, path) = file("steps.csv", &marked("rows,ms\n1,8.0\n9,9.5\n"));
    assert_eq!(step_curve(&path).unwrap().ms(), [8.0, 9.5]);
    let (_keep, path) = file("curve.csv", &marked("k,tau\n1,1.83\n2,2.43\n"));
    assert_eq!(curve(&path, "mine", &like()).unwrap().depth(), 2);
    let (_keep, path) = file("metrics.txt", "");
    std::fs::write(&path, [0xff, 0xfe, b'a', 0]).unwrap();
    assert!(vllm(&path, None, None).unwrap_err().to_string().contains("UTF-16"));
}

/// Late positions that nothing accepted keep their level, with a remark.
#[test]
fn late_positions_of_zero_are_imported() {
    let none = SCRAPE.replace("600.0", "0.0").replace("300.0", "0.0").replace("1700.0", "800.0");
    let (_keep, path) = file("metrics.txt", &none);
    let p = to_process(&vllm(&path, None, None).unwrap(), "mine", &like(), None, &path).unwrap();
    assert_eq!((p.depth(), p.conditional.values[0]), (3, 0.8));
    assert!(p.conditional.values[1] < 0.001 && p.conditional.errors[1] > 0.0, "{:?}", p.conditional);
    assert!(p.conditional.source.contains("position 2 was never accepted in 800 rounds"));
    assert!((p.tau(3) - 1.8).abs() < 0.001);
}
