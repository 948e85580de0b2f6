// Top-k and top-p of each row that asks for them: the last score and token that are kept.
//
// `sample_bins`: a histogram of each row's scores by all its chunks. `sample_filter`: a block a row finds the bin in which a
// filter ends, and looks at the row once for what is in it.
#include "filter.cuh"

TL_DEVICE bool filters(const SeqSampling &s) {
    return s.temperature > 0.0f && ((s.top_k > 0 && s.top_k < VOCAB) || s.top_p < 1.0f);
}

TL_KERNEL(sample_bins, SampleArgs, THREADS) {
    __shared__ u64 mass[BINS];
    __shared__ u32 count[BINS];
    u32 r = blockIdx.y;
    Row row = row_of(p, r);
    if (row.seq == NONE) return;
    SeqSampling s = p.sampling[row.seq];
    u64 top = row_top(p, r);
    if (!filters(s) || !usable(top)) return;
    float x[QUADS][4];
    u32 first = blockIdx.x * CHUNK;
#pragma unroll
    for (int i = 0; i < QUADS; i++) quad(row.logits, first + (i * THREADS + threadIdx.x) * 4, x[i]);
    for (u32 i = threadIdx.x; i < BINS; i += THREADS) mass[i] = 0, count[i] = 0;
    Score score{(double)row.logits[token_of(top)], 1.0 / (double)s.temperature};
    __syncthreads();
#pragma unroll
    for (int i = 0; i < QUADS; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (first + (i * THREADS + threadIdx.x) * 4 + j >= VOCAB) continue;
            double value = score(x[i][j]);
            u32 bin = first_bin(value);
            atomicAdd(&count[bin], 1u);
            // Smaller ones round to 0.
            if (value > -33.0) atomicAdd(&mass[bin], mass_of(value));
        }
    }
    __syncthreads();
    u64 bins = (u64)r * BINS;
    for (u32 i = threadIdx.x; i < BINS; i += THREADS) {
        if (count[i] == 0) continue;
        atomicAdd(&p.bin_count[bins + i], count[i]);
        atomicAdd(&p.bin_mass[bins + i], mass[i]);
    }
}

TL_DEVICE void load_bins(const SampleArgs &p, u32 r, FilterShared &s) {
    __syncthreads();
    for (u32 i = threadIdx.x; i < BINS; i += FILTER_THREADS) {
        s.count[i] = p.bin_count[(u64)r * BINS + i];
        s.mass[i] = p.bin_mass[(u64)r * BINS + i];
    }
    __syncthreads();
}

// A block a row.
TL_KERNEL_RESIDENT(sample_filter, SampleArgs, FILTER_THREADS, 1) {
    TL_SHARED(bytes);
    FilterShared &s = *(FilterShared *)bytes;
    u32 r = blockIdx.x;
    Row row = row_of(p, r);
    if (row.seq == NONE) return;
    SeqSampling how = p.sampling[row.seq];
    u64 top = row_top(p, r);
    End end{0, NONE};
    if (filters(how) && usable(top)) {
        Score score{(double)row.logits[token_of(top)], 1.0 / (double)how.temperature};
        Entries entries{row.logits, score, true, 0};
        u32 cut = NONE, turn = 0;
        load_bins(p, r, s);
        // top-k first, then top-p over what is left.
        if (how.top_k > 0 && how.top_k < VOCAB && locate<false>((double)how.top_k, 0, s)) {
            u32 bin = s.bin;
            bool whole = s.before + s.held == how.top_k;
            Interval in = first_interval(bin);
            if (whole) {
                end = End{in.low, NONE};
            } else {
                entries = gather(row.logits, score, in, s);
                end = finish<false>(entries, in, end, (double)how.top_k, s);
                cut = bin;
            }
            load_bins(p, r, s);
            // What is left of the bin that was cut, nothing behind it.
            u32 count = 0;
            u64 mass = 0, total;
            if (cut != NONE) {
                entries.each(s, [&](u64 key, u32 token) {
                    if (key < in.low || key > in.high || !end.keeps(key, token)) return;
                    count++;
                    mass += number_of(key) > -33.0 ? mass_of(number_of(key)) : 0;
                });
            }
            count = block_add(count, s.parts, turn);
            block_before(mass, s.sums, total);
            for (u32 i = threadIdx.x; i < BINS; i += FILTER_THREADS) {
                if (i > bin) s.count[i] = 0, s.mass[i] = 0;
                if (i == bin && cut != NONE) s.count[i] = count, s.mass[i] = total;
            }
            __syncthreads();
        }
        if (how.top_p < 1.0f) {
            u64 mine = 0, total;
            for (u32 i = threadIdx.x; i < BINS; i += FILTER_THREADS) mine += s.mass[i];
            block_before(mine, s.sums, total);
            double goal = (double)how.top_p * (double)total;
            if (locate<true>(goal, 0, s)) {
                u32 bin = s.bin;
                Interval in = first_interval(bin);
                if (bin != cut && s.held > 1) entries = gather(row.logits, score, in, s);
                end = finish<true>(entries, in, end, goal, s);
            }
        }
    }
    if (threadIdx.x == 0) {
        p.last_key[r] = end.key;
        p.last_token[r] = end.token;
    }
}
