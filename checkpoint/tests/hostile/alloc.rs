//! An allocator that remembers the largest request, and the values that damaged files are made of.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use proptest::prelude::*;
use serde_json::{Value, json};

struct Largest;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Largest = Largest;

// SAFETY: every call goes to the system's allocator unchanged; counting touches no allocated memory.
unsafe impl GlobalAlloc for Largest {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST.fetch_max(size, Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Fails if anything in this process has ever asked for more than 16 MiB at once; the files here are at most some kilobytes.
pub fn assert_small() {
    let largest = LARGEST.load(Relaxed);
    assert!(largest <= 16 << 20, "an allocation of {largest} bytes");
}

#[test]
fn the_allocator_sees_a_large_request() {
    // Far below the limit, so that the other tests of this process are not disturbed.
    let before = vec![0u8; 3 << 20];
    assert!(LARGEST.load(Relaxed) >= before.len());
}

/// Any JSON value, with the numbers and nestings that break things.
pub fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|b| json!(b)),
        any::<i64>().prop_map(|n| json!(n)),
        any::<u64>().prop_map(|n| json!(n)),
        (0u64..70).prop_map(|n| json!(n)),
        Just(json!(1u64 << 60)),
        Just(json!(u64::MAX)),
        Just(json!(-1)),
        any::<f64>().prop_map(|f| json!(f)),
        Just(json!(1e308)),
        Just(json!(5e-324)),
        "\\PC{0,12}".prop_map(|s| json!(s)),
        Just(json!("yarn")),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(|v| json!(v)),
            prop::collection::btree_map("[a-z_]{1,8}", inner, 0..6).prop_map(|m| json!(m)),
        ]
    })
}

/// Every place in a JSON value, as pointers.
pub fn places(value: &Value) -> Vec<String> {
    fn walk(value: &Value, at: String, out: &mut Vec<String>) {
        let children: Vec<(String, &Value)> = match value {
            Value::Object(map) => map.iter().map(|(k, v)| (k.replace('~', "~0").replace('/', "~1"), v)).collect(),
            Value::Array(list) => list.iter().enumerate().map(|(i, v)| (i.to_string(), v)).collect(),
            _ => Vec::new(),
        };
        for (key, child) in children {
            walk(child, format!("{at}/{key}"), out);
        }
        out.push(at);
    }
    let mut out = Vec::new();
    walk(value, String::new(), &mut out);
    out
}

/// Puts new values at some places, chosen by number.
pub fn damage(value: &mut Value, changes: &[(usize, Value)]) {
    for (n, new) in changes {
        let places = places(value);
        *value.pointer_mut(&places[n % places.len()]).unwrap() = new.clone();
    }
}

/// Changes bytes, cuts, and repeats: what a bad disk or download does.
pub fn corrupt(bytes: &mut Vec<u8>, flips: &[(usize, u8)], cut: Option<usize>) {
    for (at, mask) in flips {
        let length = bytes.len();
        if length > 0 {
            bytes[at % length] ^= mask;
        }
    }
    if let Some(cut) = cut {
        bytes.truncate(cut % (bytes.len() + 1));
    }
}
