//! Products with few rows against f64: all row counts' kernels, splits, batches with gaps, sums, gates; NaN stays in its row.

use treeline_cuda::device::{Buffer, Dtype, Gpu, Matrix, Ptr};
use treeline_cuda::ops::dense::{Dense, DenseCall, Glu, Queries};
use treeline_cuda::testing::{Numbers, from_bf16, gpus, relative_error, to_bf16};

/// Random numbers as bf16 holds them.
fn random(noise: &mut Numbers, n: usize, scale: f32) -> Vec<f32> {
    from_bf16(&to_bf16(&noise.floats(n, scale)))
}

fn up(gpu: &Gpu, x: &[f32]) -> Buffer<u16> {
    gpu.upload("operand", &to_bf16(x)).unwrap()
}

/// Σ_i x\[i\] w\[o, i\] in f64.
fn dot(x: &[f32], w: &[f32], o: usize) -> f64 {
    x.iter().zip(&w[o * x.len()..]).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

fn matrix(at: Ptr, stride: usize, batch_stride: usize, dtype: Dtype) -> Matrix {
    Matrix { at, stride, batch_stride, dtype }
}

#[test]
fn plain_products_match_f64() {
    for gpu in gpus() {
        let dense = Dense::new(&gpu).unwrap();
        let mut noise = Numbers(1);
        let shapes =
            [(1, 64, 32), (3, 100, 96), (8, 70, 512), (9, 130, 128), (17, 65, 256), (33, 64, 192), (40, 200, 64)];
        for (rows, outputs, inputs) in shapes {
            let (x, w) = (random(&mut noise, rows * inputs, 1.0), random(&mut noise, outputs * inputs, 1.0));
            let (dx, dw) = (up(&gpu, &x), up(&gpu, &w));
            for splits in [1, 2, 5] {
                for dtype in [Dtype::F32, Dtype::Bf16] {
                    let y: Buffer<u8> = gpu.alloc("y", rows * outputs * dtype.bytes()).unwrap();
                    gpu.fill(&y, 0xFF).unwrap();
                    let call = DenseCall {
                        rows,
                        inputs,
                        batch: 1,
                        x: matrix(dx.ptr(), inputs, 0, Dtype::Bf16),
                        w: matrix(dw.ptr(), inputs, 0, Dtype::Bf16),
                        outputs,
                        y: matrix(y.ptr(), outputs, 0, dtype),
                        add: false,
                        glu: None,
                        queries: None,
                    };
                    assert!(dense.serves(&call));
                    // Twice: the second launch finds what the first left in the working memory.
                    dense.run_split(&gpu, &call, splits).unwrap();
                    dense.run_split(&gpu, &call, splits).unwrap();
                    let got: Vec<f32> = match dtype {
                        Dtype::F32 => gpu.read(y.ptr(), rows * outputs).unwrap(),
                        Dtype::Bf16 => from_bf16(&gpu.read(y.ptr(), rows * outputs).unwrap()),
                    };
                    let want: Vec<f32> = x
                        .chunks_exact(inputs)
                        .flat_map(|x| (0..outputs).map(|o| dot(x, &w, o) as f32).collect::<Vec<_>>())
                        .collect();
                    let error = relative_error(&got, &want);
                    let most = if dtype == Dtype::F32 { 2e-6 } else { 4e-3 };
                    assert!(error <= most, "{rows} x {outputs} x {inputs}, {splits} splits, {dtype:?}: {error:e}");
                }
            }
        }
    }
}

/// One product a head, as latent attention has them: rows of heads side by side, and results with gaps that stay as they are.
#[test]
fn batches_and_sums_match_f64() {
    for gpu in gpus() {
        let dense = Dense::new(&gpu).unwrap();
        let mut noise = Numbers(2);
        let (rows, heads, inputs, outputs) = (5, 3, 64, 80);
        let (in_stride, out_stride) = (inputs + 16, outputs + 8);
        let x = random(&mut noise, rows * heads * in_stride, 1.0);
        let w = random(&mut noise, heads * outputs * inputs, 1.0);
        let y = random(&mut noise, rows * heads * out_stride, 1.0);
        let (dx, dw) = (up(&gpu, &x), up(&gpu, &w));
        for (add, splits) in [(false, 1), (true, 1), (true, 2)] {
            let dy = up(&gpu, &y);
            let call = DenseCall {
                rows,
                inputs,
                batch: heads,
                x: matrix(dx.ptr(), heads * in_stride, in_stride, Dtype::Bf16),
                w: matrix(dw.ptr(), inputs, outputs * inputs, Dtype::Bf16),
                outputs,
                y: matrix(dy.ptr(), heads * out_stride, out_stride, Dtype::Bf16),
                add,
                glu: None,
                queries: None,
            };
            dense.run_split(&gpu, &call, splits).unwrap();
            let got = from_bf16(&gpu.read_all(&dy).unwrap());
            let mut want = y.clone();
            for r in 0..rows {
                for h in 0..heads {
                    let x = &x[(r * heads + h) * in_stride..][..inputs];
                    let y = &mut want[(r * heads + h) * out_stride..][..outputs];
                    for (o, y) in y.iter_mut().enumerate() {
                        *y = (dot(x, &w, h * outputs + o) + if add { f64::from(*y) } else { 0.0 }) as f32;
                    }
                }
            }
            let error = relative_error(&got, &want);
            assert!(error <= 4e-3, "add {add}, {splits} splits: {error:e}");
        }
    }
}

/// Router scores and a gated pair in one launch.
#[test]
fn gates_match_f64_and_nan_stays_in_its_row() {
    for gpu in gpus() {
        let dense = Dense::new(&gpu).unwrap();
        let mut noise = Numbers(3);
        for (rows, outputs, inner, inputs, splits) in [(1, 40, 32, 64, 1), (6, 0, 48, 256, 3), (20, 130, 72, 128, 2)] {
            let mut x = random(&mut noise, rows * inputs, 1.0);
            let w = random(&mut noise, outputs * inputs, 0.3);
            let both = random(&mut noise, 2 * inner * inputs, 0.3);
            let spoilt = rows / 2;
            if rows > 1 {
                x[spoilt * inputs + 5] = f32::NAN;
            }
            let (dx, dw, dg) = (up(&gpu, &x), up(&gpu, &w), up(&gpu, &both));
            let y: Buffer<f32> = gpu.alloc("y", rows * outputs).unwrap();
            let z: Buffer<u16> = gpu.alloc("z", rows * inner).unwrap();
            let call = DenseCall {
                rows,
                inputs,
                batch: 1,
                x: matrix(dx.ptr(), inputs, 0, Dtype::Bf16),
                w: matrix(dw.ptr(), inputs, 0, Dtype::Bf16),
                outputs,
                y: matrix(y.ptr(), outputs, 0, Dtype::F32),
                add: false,
                glu: Some(Glu { w: dg.ptr(), inner, z: z.ptr() }),
                queries: None,
            };
            dense.run_split(&gpu, &call, splits).unwrap();
            let (y, z) = (gpu.read_all(&y).unwrap(), from_bf16(&gpu.read_all(&z).unwrap()));
            for r in 0..rows {
                let (x, y, z) = (&x[r * inputs..][..inputs], &y[r * outputs..][..outputs], &z[r * inner..][..inner]);
                if rows > 1 && r == spoilt {
                    assert!(y.iter().chain(z).all(|v| v.is_nan()), "row {r}");
                    continue;
                }
                let scores: Vec<f32> = (0..outputs).map(|o| dot(x, &w, o) as f32).collect();
                let gated = |i: usize| {
                    let (gate, up) = (dot(x, &both, i), dot(x, &both, inner + i));
                    (gate / (1.0 + (-gate).exp()) * up) as f32
                };
                let want: Vec<f32> = (0..inner).map(gated).collect();
                assert!(outputs == 0 || relative_error(y, &scores) <= 2e-6, "row {r}");
                let error = relative_error(z, &want);
                assert!(error <= 4e-3, "row {r}: {error:e}");
            }
        }
    }
}

/// Queries of latent attention: scaled, and their last part turned and put behind the absorbed query.
#[test]
fn queries_match_f64() {
    for gpu in gpus() {
        let dense = Dense::new(&gpu).unwrap();
        let mut noise = Numbers(4);
        let (rows, heads, nope, rope, latent, inputs, scale) = (11, 3, 24, 16, 40, 96, 0.3f32);
        let outputs = heads * (nope + rope);
        let x = random(&mut noise, rows * inputs, 1.0);
        let w = random(&mut noise, outputs * inputs, 0.5);
        let position: Vec<u32> = (0..rows as u32).map(|r| (r * 5) % 13).collect();
        let angles = noise.floats(13 * rope / 2, 3.0);
        let of = |f: fn(f32) -> f32| angles.iter().map(|a| f(*a)).collect::<Vec<f32>>();
        let (cos, sin) = (of(f32::cos), of(f32::sin));
        let (dx, dw) = (up(&gpu, &x), up(&gpu, &w));
        let (dc, ds) = (gpu.upload("cos", &cos).unwrap(), gpu.upload("sin", &sin).unwrap());
        let dp = gpu.upload("position", &position).unwrap();
        for splits in [1, 3] {
            let y = up(&gpu, &vec![7.0; rows * outputs]);
            let absorbed = up(&gpu, &vec![7.0; rows * heads * (latent + rope)]);
            let call = DenseCall {
                rows,
                inputs,
                batch: 1,
                x: matrix(dx.ptr(), inputs, 0, Dtype::Bf16),
                w: matrix(dw.ptr(), inputs, 0, Dtype::Bf16),
                outputs,
                y: matrix(y.ptr(), outputs, 0, Dtype::Bf16),
                add: false,
                glu: None,
                queries: Some(Queries {
                    cos: dc.ptr(),
                    sin: ds.ptr(),
                    position: dp.ptr(),
                    absorbed: absorbed.ptr(),
                    nope,
                    rope,
                    latent,
                    scale,
                }),
            };
            dense.run_split(&gpu, &call, splits).unwrap();
            let (y, absorbed) = (from_bf16(&gpu.read_all(&y).unwrap()), from_bf16(&gpu.read_all(&absorbed).unwrap()));
            // What is not written keeps its 7.
            let (mut want_y, mut want_absorbed) = (vec![7.0f32; y.len()], vec![7.0f32; absorbed.len()]);
            for r in 0..rows {
                let x = &x[r * inputs..][..inputs];
                for h in 0..heads {
                    let first = h * (nope + rope);
                    let q = |i: usize| dot(x, &w, first + i) * f64::from(scale);
                    (0..nope).for_each(|i| want_y[r * outputs + first + i] = q(i) as f32);
                    for pair in 0..rope / 2 {
                        let at = position[r] as usize * rope / 2 + pair;
                        let (c, s) = (f64::from(cos[at]), f64::from(sin[at]));
                        let (a, b) = (q(nope + 2 * pair), q(nope + 2 * pair + 1));
                        let to = (r * heads + h) * (latent + rope) + latent + 2 * pair;
                        want_absorbed[to] = (a * c - b * s) as f32;
                        want_absorbed[to + 1] = (b * c + a * s) as f32;
                    }
                }
            }
            assert!(relative_error(&y, &want_y) <= 4e-3, "{splits} splits");
            assert!(relative_error(&absorbed, &want_absorbed) <= 4e-3, "{splits} splits");
        }
    }
}
