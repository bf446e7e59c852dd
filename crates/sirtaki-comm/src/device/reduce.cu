// Reductions, copies and fills in the memory of a GPU, with the results of the host's kernels (`src/kernel`): the same
// type for sums, the same factors, the same order, no fused operations. Only the payload of a NaN may differ.
//
// `cargo xtask ptx` compiles this file to `reduce.ptx`, which is what programs carry and drivers compile. `kernels.rs`
// launches what is here; constants and structures are the same in both.
//
// Work is a table of segments, so that one launch does many small tensors. A segment is cut into tiles; a block finds the
// segment of its tile by bisection. Loads never go through the read-only cache: inputs belong to other processes, too.

typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef __int128 i128;
typedef unsigned __int128 u128;

constexpr u32 THREADS = 256;
// Rows of 16 bytes that a thread works on at a time.
constexpr u32 ROWS = 2;
constexpr u32 TILE_BYTES = THREADS * ROWS * 16;
constexpr u32 COPY_ROWS = 4;
constexpr u32 COPY_TILE_BYTES = THREADS * COPY_ROWS * 16;

constexpr u32 MOST_INPUTS = 64;
constexpr u32 COMBINE_SEGMENTS = 128;
constexpr u32 COPY_SEGMENTS = 160;

enum Op : u32 { SUM = 0, PRODUCT = 1, MIN = 2, MAX = 3 };

// How a factor is applied: not at all, by one multiplication in `float` or `double`, or exactly in integers.
enum FactorKind : u32 { NONE = 0, SINGLE = 1, DOUBLE = 2, TIMES = 3, OVER = 4 };

struct Factor {
    u32 kind;
    u32 unused;
    u64 bits;

    __device__ double real() const { return __longlong_as_double((i64)bits); }
    __device__ i64 whole() const { return (i64)bits; }
};

// Elements of the result; the inputs' elements begin `offset` bytes after the inputs.
struct CombineSegment {
    u64 out;
    u32 offset;
    u32 count;
    u32 first_tile;
    u32 aligned;
};

struct CombineJob {
    u64 inputs[MOST_INPUTS];
    CombineSegment segments[COMBINE_SEGMENTS];
    u32 input_count;
    u32 segment_count;
    u32 tiles;
    u32 op;
    Factor before;
    Factor after;
};

struct CopySegment {
    u64 to;
    u64 from;
    u32 bytes;
    u32 first_tile;
};

struct CopyJob {
    CopySegment segments[COPY_SEGMENTS];
    u32 segment_count;
    u32 tiles;
};

// Memory.

__device__ uint4 load_row(u64 at) {
    uint4 row;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(row.x), "=r"(row.y), "=r"(row.z), "=r"(row.w)
                 : "l"(at)
                 : "memory");
    return row;
}

__device__ void store_row(u64 at, uint4 row) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(row.x), "r"(row.y), "r"(row.z), "r"(row.w)
                 : "memory");
}

__device__ void load(u64 at, u8 &x) {
    u32 wide;
    asm volatile("ld.global.u8 %0, [%1];" : "=r"(wide) : "l"(at) : "memory");
    x = (u8)wide;
}

__device__ void load(u64 at, i8 &x) {
    u8 bits;
    load(at, bits);
    x = (i8)bits;
}

__device__ void load(u64 at, u16 &x) { asm volatile("ld.global.u16 %0, [%1];" : "=h"(x) : "l"(at) : "memory"); }
__device__ void load(u64 at, u32 &x) { asm volatile("ld.global.u32 %0, [%1];" : "=r"(x) : "l"(at) : "memory"); }
__device__ void load(u64 at, int &x) { asm volatile("ld.global.u32 %0, [%1];" : "=r"(x) : "l"(at) : "memory"); }
__device__ void load(u64 at, i64 &x) { asm volatile("ld.global.u64 %0, [%1];" : "=l"(x) : "l"(at) : "memory"); }
__device__ void load(u64 at, float &x) { asm volatile("ld.global.f32 %0, [%1];" : "=f"(x) : "l"(at) : "memory"); }
__device__ void load(u64 at, double &x) { asm volatile("ld.global.f64 %0, [%1];" : "=d"(x) : "l"(at) : "memory"); }

__device__ void store(u64 at, u8 x) { asm volatile("st.global.u8 [%0], %1;" ::"l"(at), "r"((u32)x) : "memory"); }
__device__ void store(u64 at, i8 x) { store(at, (u8)x); }
__device__ void store(u64 at, u16 x) { asm volatile("st.global.u16 [%0], %1;" ::"l"(at), "h"(x) : "memory"); }
__device__ void store(u64 at, u32 x) { asm volatile("st.global.u32 [%0], %1;" ::"l"(at), "r"(x) : "memory"); }
__device__ void store(u64 at, int x) { asm volatile("st.global.u32 [%0], %1;" ::"l"(at), "r"(x) : "memory"); }
__device__ void store(u64 at, i64 x) { asm volatile("st.global.u64 [%0], %1;" ::"l"(at), "l"(x) : "memory"); }
__device__ void store(u64 at, float x) { asm volatile("st.global.f32 [%0], %1;" ::"l"(at), "f"(x) : "memory"); }
__device__ void store(u64 at, double x) { asm volatile("st.global.f64 [%0], %1;" ::"l"(at), "d"(x) : "memory"); }

// How two numbers become one, for every type that sums are kept in.

struct Truth {
    u8 value;
};

// Integers that are wide enough for scaled sums of narrower ones; they stay at the ends of their range.
struct Wide64 {
    i64 value;
};
struct Wide128 {
    i128 value;
};

constexpr i64 MAX64 = 0x7fffffffffffffffLL;
constexpr i64 MIN64 = -MAX64 - 1;
__device__ i128 max128() { return (i128)(~(u128)0 >> 1); }
__device__ i128 min128() { return -max128() - 1; }
__device__ i64 clamp64(i128 x) { return x > MAX64 ? MAX64 : x < MIN64 ? MIN64 : (i64)x; }

__device__ i128 saturating_add(i128 a, i128 b) {
    i128 sum = (i128)((u128)a + (u128)b);
    bool overflows = ((a ^ sum) & (b ^ sum)) < 0;
    return overflows ? (a < 0 ? min128() : max128()) : sum;
}

__device__ i128 saturating_mul(i128 a, i128 b) {
    bool negative = (a < 0) != (b < 0);
    u128 x = a < 0 ? -(u128)a : (u128)a, y = b < 0 ? -(u128)b : (u128)b;
    u64 xh = (u64)(x >> 64), xl = (u64)x, yh = (u64)(y >> 64), yl = (u64)y;
    i128 end = negative ? min128() : max128();
    // At most one of them is not zero, unless both factors are too large anyhow.
    u128 cross = (u128)xh * yl + (u128)xl * yh;
    if ((xh != 0 && yh != 0) || (cross >> 64) != 0) return end;
    u128 low = (u128)xl * yl;
    u128 product = low + (cross << 64);
    u128 limit = ((u128)1 << 127) - (negative ? 0 : 1);
    if (product < low || product > limit) return end;
    return negative ? (i128)(-product) : (i128)product;
}

__device__ u8 truth(u8 x) { return x != 0; }

#define INTEGER(T, U)                                                                                                  \
    __device__ T add(T a, T b) { return (T)((U)a + (U)b); }                                                            \
    __device__ T multiply(T a, T b) { return (T)((U)a * (U)b); }                                                       \
    __device__ T least(T a, T b) { return a < b ? a : b; }                                                             \
    __device__ T greatest(T a, T b) { return a > b ? a : b; }

INTEGER(i8, u32)
INTEGER(u8, u32)
INTEGER(int, u32)
INTEGER(i64, u64)

// Smallest and largest are the same bits in either order: -0 is below +0, and a NaN becomes the standard one.
__device__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ float multiply(float a, float b) { return __fmul_rn(a, b); }
__device__ float least(float a, float b) {
    float equal = __int_as_float(__float_as_int(a) | __float_as_int(b));
    float number = a == b ? equal : a < b ? a : b;
    return a != a || b != b ? __int_as_float(0x7fc00000) : number;
}
__device__ float greatest(float a, float b) {
    float equal = __int_as_float(__float_as_int(a) & __float_as_int(b));
    float number = a == b ? equal : a > b ? a : b;
    return a != a || b != b ? __int_as_float(0x7fc00000) : number;
}

__device__ double add(double a, double b) { return __dadd_rn(a, b); }
__device__ double multiply(double a, double b) { return __dmul_rn(a, b); }
__device__ double least(double a, double b) {
    double equal = __longlong_as_double(__double_as_longlong(a) | __double_as_longlong(b));
    double number = a == b ? equal : a < b ? a : b;
    return a != a || b != b ? __longlong_as_double(0x7ff8000000000000LL) : number;
}
__device__ double greatest(double a, double b) {
    double equal = __longlong_as_double(__double_as_longlong(a) & __double_as_longlong(b));
    double number = a == b ? equal : a > b ? a : b;
    return a != a || b != b ? __longlong_as_double(0x7ff8000000000000LL) : number;
}

__device__ Truth multiply(Truth a, Truth b) { return Truth{(u8)(a.value & b.value)}; }
__device__ Truth add(Truth a, Truth b) { return Truth{(u8)(a.value | b.value)}; }
__device__ Truth least(Truth a, Truth b) { return multiply(a, b); }
__device__ Truth greatest(Truth a, Truth b) { return add(a, b); }

__device__ Wide64 add(Wide64 a, Wide64 b) { return Wide64{clamp64((i128)a.value + b.value)}; }
__device__ Wide64 multiply(Wide64 a, Wide64 b) { return Wide64{clamp64((i128)a.value * b.value)}; }
__device__ Wide64 least(Wide64 a, Wide64 b) { return a.value < b.value ? a : b; }
__device__ Wide64 greatest(Wide64 a, Wide64 b) { return a.value > b.value ? a : b; }

__device__ Wide128 add(Wide128 a, Wide128 b) { return Wide128{saturating_add(a.value, b.value)}; }
__device__ Wide128 multiply(Wide128 a, Wide128 b) { return Wide128{saturating_mul(a.value, b.value)}; }
__device__ Wide128 least(Wide128 a, Wide128 b) { return a.value < b.value ? a : b; }
__device__ Wide128 greatest(Wide128 a, Wide128 b) { return a.value > b.value ? a : b; }

// Multiplying by a factor.

__device__ float scaled(float x, const Factor &f) {
    if (f.kind == SINGLE) return __fmul_rn(x, (float)f.real());
    if (f.kind == DOUBLE) return __double2float_rn(__dmul_rn((double)x, f.real()));
    return x;
}

__device__ double scaled(double x, const Factor &f) { return f.kind == NONE ? x : __dmul_rn(x, f.real()); }

__device__ Wide64 scaled(Wide64 x, const Factor &f) {
    if (f.kind == TIMES) return Wide64{clamp64((i128)x.value * f.whole())};
    if (f.kind == OVER) return Wide64{x.value / f.whole()};
    if (f.kind != DOUBLE) return x;
    double product = __dmul_rn((double)x.value, f.real());
    if (product != product) return Wide64{0};
    if (product >= 9223372036854775808.0) return Wide64{MAX64};
    return Wide64{product < -9223372036854775808.0 ? MIN64 : (i64)product};
}

__device__ double to_double(i128 x) {
    u128 size = x < 0 ? -(u128)x : (u128)x;
    u64 high = (u64)(size >> 64);
    double result;
    if (high == 0) {
        result = __ull2double_rn((u64)size);
    } else {
        // 64 leading bits; what is cut off leaves its trace in the last, so that rounding happens once.
        int shift = 64 - __clzll((i64)high);
        u64 leading = (u64)(size >> shift);
        u128 rest = size & (((u128)1 << shift) - 1);
        result = __dmul_rn(__ull2double_rn(leading | (rest != 0)), __longlong_as_double((i64)(1023 + shift) << 52));
    }
    return x < 0 ? -result : result;
}

__device__ i128 to_wide(double x) {
    const double END = 170141183460469231731687303715884105728.0;
    if (x != x) return 0;
    if (x >= END) return max128();
    if (x <= -END) return min128();
    u64 bits = (u64)__double_as_longlong(x);
    int exponent = (int)(bits >> 52 & 0x7ff) - 1075;
    u128 mantissa = (bits & 0xfffffffffffffULL) | 0x10000000000000ULL;
    u128 size = exponent <= -64 ? 0 : exponent < 0 ? mantissa >> -exponent : mantissa << exponent;
    return x < 0 ? (i128)(-size) : (i128)size;
}

// Division by a number below 2^63, digit by digit in base 2; averages of 64-bit integers are rare.
__device__ i128 divided(i128 x, i64 by) {
    bool negative = (x < 0) != (by < 0);
    u128 size = x < 0 ? -(u128)x : (u128)x;
    u64 divisor = by < 0 ? -(u64)by : (u64)by;
    u128 quotient = 0;
    if ((u64)(size >> 64) == 0) {
        quotient = (u64)size / divisor;
    } else {
        u64 rest = 0;
#pragma unroll 1
        for (int bit = 127; bit >= 0; bit--) {
            rest = rest << 1 | ((u64)(size >> bit) & 1);
            quotient <<= 1;
            if (rest >= divisor) {
                rest -= divisor;
                quotient |= 1;
            }
        }
    }
    return negative ? (i128)(-quotient) : (i128)quotient;
}

__device__ Wide128 scaled(Wide128 x, const Factor &f) {
    if (f.kind == TIMES) return Wide128{saturating_mul(x.value, f.whole())};
    if (f.kind == OVER) return Wide128{divided(x.value, f.whole())};
    if (f.kind != DOUBLE) return x;
    return Wide128{to_wide(__dmul_rn(to_double(x.value), f.real()))};
}

__device__ i8 scaled(i8 x, const Factor &) { return x; }
__device__ u8 scaled(u8 x, const Factor &) { return x; }
__device__ int scaled(int x, const Factor &) { return x; }
__device__ i64 scaled(i64 x, const Factor &) { return x; }
__device__ Truth scaled(Truth x, const Factor &) { return x; }

// The way from an element to the type that sums are kept in, and back.

template <class T> struct Same {
    typedef T Element;
    typedef T Sum;
    static constexpr bool BY_ROWS = true;
    static __device__ T widen(T x) { return x; }
    static __device__ T narrow(T x) { return x; }
};

struct Booleans {
    typedef u8 Element;
    typedef Truth Sum;
    static constexpr bool BY_ROWS = true;
    static __device__ Truth widen(u8 x) { return Truth{truth(x)}; }
    static __device__ u8 narrow(Truth x) { return x.value; }
};

struct F16 {
    static __device__ float to(u16 x) {
        float wide;
        asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
        return wide;
    }
    static __device__ u16 from(float x) {
        u16 half;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
        return half;
    }
};

struct BF16 {
    static __device__ float to(u16 x) { return __int_as_float((int)((u32)x << 16)); }
    static __device__ u16 from(float x) {
        u32 bits = (u32)__float_as_int(x);
        u32 nearest = bits + 0x7fff + (bits >> 16 & 1);
        return (u16)((x != x ? bits | 0x00400000 : nearest) >> 16);
    }
};

// `A` is the type for sums; the way back is always through `float`.
template <class H, class A> struct Halves {
    typedef u16 Element;
    typedef A Sum;
    static constexpr bool BY_ROWS = true;
    static __device__ A widen(u16 x) { return (A)H::to(x); }
    static __device__ u16 narrow(float x) { return H::from(x); }
    static __device__ u16 narrow(double x) { return H::from(__double2float_rn(x)); }
};

template <class T, i64 LOW, i64 HIGH> struct Widened {
    typedef T Element;
    typedef Wide64 Sum;
    static constexpr bool BY_ROWS = false;
    static __device__ Wide64 widen(T x) { return Wide64{(i64)x}; }
    static __device__ T narrow(Wide64 x) { return (T)(x.value < LOW ? LOW : x.value > HIGH ? HIGH : x.value); }
};

struct WidenedI64 {
    typedef i64 Element;
    typedef Wide128 Sum;
    static constexpr bool BY_ROWS = false;
    static __device__ Wide128 widen(i64 x) { return Wide128{x}; }
    static __device__ i64 narrow(Wide128 x) { return clamp64(x.value); }
};

// Loops.

template <class A> __device__ A apply(u32 op, A a, A b) {
    switch (op) {
    case SUM:
        return add(a, b);
    case PRODUCT:
        return multiply(a, b);
    case MIN:
        return least(a, b);
    default:
        return greatest(a, b);
    }
}

// The operation is looked at once for all numbers.
template <class A, u32 N> __device__ void fold(u32 op, A (&into)[N], const A (&from)[N]) {
    switch (op) {
    case SUM:
#pragma unroll
        for (u32 i = 0; i < N; i++) into[i] = add(into[i], from[i]);
        break;
    case PRODUCT:
#pragma unroll
        for (u32 i = 0; i < N; i++) into[i] = multiply(into[i], from[i]);
        break;
    case MIN:
#pragma unroll
        for (u32 i = 0; i < N; i++) into[i] = least(into[i], from[i]);
        break;
    default:
#pragma unroll
        for (u32 i = 0; i < N; i++) into[i] = greatest(into[i], from[i]);
    }
}

template <class A, u32 N> __device__ void scale(A (&data)[N], const Factor &f) {
    if (f.kind == NONE) return;
#pragma unroll
    for (u32 i = 0; i < N; i++) data[i] = scaled(data[i], f);
}

// The position of the last segment that begins at or before a tile.
template <class S> __device__ u32 segment_of(const S *segments, u32 count, u32 tile) {
    u32 low = 0, high = count;
    while (high - low > 1) {
        u32 middle = (low + high) / 2;
        if (segments[middle].first_tile <= tile) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

template <class L> __device__ void combine_one(const CombineJob &job, u64 offset, u64 out) {
    typedef typename L::Sum A;
    typename L::Element element;
    load(job.inputs[0] + offset, element);
    A sum = scaled(L::widen(element), job.before);
#pragma unroll 1
    for (u32 input = 1; input < job.input_count; input++) {
        load(job.inputs[input] + offset, element);
        sum = apply(job.op, sum, scaled(L::widen(element), job.before));
    }
    store(out, L::narrow(scaled(sum, job.after)));
}

// One row of a thread; the next input is on its way while this one is added.
template <class L> __device__ void combine_rows(const CombineJob &job, u64 offset, u64 out, const bool (&mine)[ROWS]) {
    typedef typename L::Sum A;
    typedef typename L::Element T;
    const u32 IN_ROW = 16 / sizeof(T);
    const u64 STEP = THREADS * 16;
    union Row {
        uint4 row;
        T elements[IN_ROW];
    };
    Row next[ROWS];
    A sums[ROWS * IN_ROW];
#pragma unroll
    for (u32 i = 0; i < ROWS; i++)
        if (mine[i]) next[i].row = load_row(job.inputs[0] + offset + i * STEP);
#pragma unroll 1
    for (u32 input = 0; input < job.input_count; input++) {
        A numbers[ROWS * IN_ROW];
#pragma unroll
        for (u32 i = 0; i < ROWS * IN_ROW; i++) numbers[i] = L::widen(next[i / IN_ROW].elements[i % IN_ROW]);
        if (input + 1 < job.input_count) {
            u64 base = job.inputs[input + 1] + offset;
#pragma unroll
            for (u32 i = 0; i < ROWS; i++)
                if (mine[i]) next[i].row = load_row(base + i * STEP);
        }
        scale(numbers, job.before);
        if (input == 0) {
#pragma unroll
            for (u32 i = 0; i < ROWS * IN_ROW; i++) sums[i] = numbers[i];
        } else {
            fold(job.op, sums, numbers);
        }
    }
    scale(sums, job.after);
#pragma unroll
    for (u32 i = 0; i < ROWS; i++) {
        Row row;
#pragma unroll
        for (u32 e = 0; e < IN_ROW; e++) row.elements[e] = L::narrow(sums[i * IN_ROW + e]);
        if (mine[i]) store_row(out + i * STEP, row.row);
    }
}

template <class L> __device__ void combine(const CombineJob &job) {
    const u32 SIZE = sizeof(typename L::Element);
    for (u32 tile = blockIdx.x; tile < job.tiles; tile += gridDim.x) {
        const CombineSegment &segment = job.segments[segment_of(job.segments, job.segment_count, tile)];
        u64 begin = (u64)(tile - segment.first_tile) * TILE_BYTES, left = (u64)segment.count * SIZE - begin;
        u32 bytes = left < TILE_BYTES ? (u32)left : TILE_BYTES;
        u64 offset = segment.offset + begin, out = segment.out + begin;
        u32 done = 0;
        if (L::BY_ROWS && segment.aligned) {
            done = bytes & ~15u;
            u32 at = threadIdx.x * 16;
            bool mine[ROWS];
#pragma unroll
            for (u32 i = 0; i < ROWS; i++) mine[i] = at + i * THREADS * 16 < done;
            if (mine[0]) combine_rows<L>(job, offset + at, out + at, mine);
        }
#pragma unroll 1
        for (u32 at = done + threadIdx.x * SIZE; at < bytes; at += THREADS * SIZE)
            combine_one<L>(job, offset + at, out + at);
    }
}

#define COMBINE(NAME, ...)                                                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS) NAME(const __grid_constant__ CombineJob job) {               \
        combine<__VA_ARGS__>(job);                                                                                     \
    }

COMBINE(combine_f32, Same<float>)
COMBINE(combine_f64, Same<double>)
COMBINE(combine_f16, Halves<F16, float>)
COMBINE(combine_f16_double, Halves<F16, double>)
COMBINE(combine_bf16, Halves<BF16, float>)
COMBINE(combine_bf16_double, Halves<BF16, double>)
COMBINE(combine_i8, Same<i8>)
COMBINE(combine_u8, Same<u8>)
COMBINE(combine_i32, Same<int>)
COMBINE(combine_i64, Same<i64>)
COMBINE(combine_i8_wide, Widened<i8, -128, 127>)
COMBINE(combine_u8_wide, Widened<u8, 0, 255>)
COMBINE(combine_i32_wide, Widened<int, -2147483648LL, 2147483647LL>)
COMBINE(combine_i64_wide, WidenedI64)
COMBINE(combine_bool, Booleans)

// Copies so many bytes in units of `T`, all threads of a block together.
template <class T> __device__ void copy_units(u64 to, u64 from, u32 bytes) {
    const u32 UNITS = 8, STEP = THREADS * sizeof(T);
    for (u32 at = threadIdx.x * sizeof(T); at < bytes; at += UNITS * STEP) {
        T units[UNITS];
#pragma unroll
        for (u32 i = 0; i < UNITS; i++)
            if (at + i * STEP < bytes) load(from + at + i * STEP, units[i]);
#pragma unroll
        for (u32 i = 0; i < UNITS; i++)
            if (at + i * STEP < bytes) store(to + at + i * STEP, units[i]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) copy_segments(const __grid_constant__ CopyJob job) {
    for (u32 tile = blockIdx.x; tile < job.tiles; tile += gridDim.x) {
        const CopySegment &segment = job.segments[segment_of(job.segments, job.segment_count, tile)];
        u32 begin = (tile - segment.first_tile) * COPY_TILE_BYTES, left = segment.bytes - begin;
        u32 bytes = left < COPY_TILE_BYTES ? left : COPY_TILE_BYTES;
        u64 to = segment.to + begin, from = segment.from + begin;
        u32 done = 0;
        if (((to | from) & 15) == 0) {
            done = bytes & ~15u;
            uint4 rows[COPY_ROWS];
            u32 at = threadIdx.x * 16;
            const u32 STEP = THREADS * 16;
#pragma unroll
            for (u32 i = 0; i < COPY_ROWS; i++)
                if (at + i * STEP < done) rows[i] = load_row(from + at + i * STEP);
#pragma unroll
            for (u32 i = 0; i < COPY_ROWS; i++)
                if (at + i * STEP < done) store_row(to + at + i * STEP, rows[i]);
        } else if (((to | from) & 3) == 0) {
            done = bytes & ~3u;
            copy_units<u32>(to, from, done);
        }
        copy_units<u8>(to + done, from + done, bytes - done);
    }
}

// Fills memory with eight bytes again and again, so that a byte depends on its address alone.
extern "C" __global__ void __launch_bounds__(THREADS) fill(u64 to, u64 bytes, u64 pattern) {
    u64 head = -to & 15, thread = (u64)blockIdx.x * THREADS + threadIdx.x, threads = (u64)gridDim.x * THREADS;
    if (head > bytes) head = bytes;
    u64 rows = (bytes - head) / 16, tail = head + rows * 16;
    uint4 row = make_uint4((u32)pattern, (u32)(pattern >> 32), (u32)pattern, (u32)(pattern >> 32));
    for (u64 i = thread; i < rows; i += threads) store_row(to + head + i * 16, row);
    if (thread < head) store(to + thread, (u8)(pattern >> (to + thread & 7) * 8));
    if (tail + thread < bytes) store(to + tail + thread, (u8)(pattern >> (to + tail + thread & 7) * 8));
}
