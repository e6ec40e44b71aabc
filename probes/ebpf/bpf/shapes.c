/* The shapes of launches: each is reported once, with a number that launches have from then on.
 *
 * A number is whose insertion succeeds: programs of this compiler get no value back from an atomic addition. Shapes
 * that could not be read or reported, and those after the last number, have the number 0: not known.
 */
struct shape {
	u32 sizes[SHAPE_SIZES];
};
BPF_TABLE("hash", struct shape, u32, shapes, MAX_SHAPES);
BPF_TABLE("hash", u32, u32, shape_numbers, MAX_SHAPES);
BPF_ARRAY(shapes_reported, u32, 1);

/* A free number; 0 where there is none, or others were faster. */
static __always_inline u32 new_shape_number(u32 *reported)
{
	u32 one = 1;
#pragma unroll
	for (int i = 1; i <= 4; i++) {
		u32 number = *reported + i;
		if (!shape_numbers.insert(&number, &one)) {
			__sync_fetch_and_add(reported, 1);
			return number;
		}
	}
	return 0;
}

static __always_inline u32 report_shape(struct shape *s, u32 pid, u32 tid)
{
	u32 zero = 0, *reported = shapes_reported.lookup(&zero);
	if (!reported || *reported >= MAX_SHAPES)
		return 0;
	struct record *r = begin(KIND_SHAPE, LOST_OTHERS, bpf_ktime_get_ns(), pid, tid);
	if (!r)
		return 0; /* the next launch tries again */
	u32 number = new_shape_number(reported);
	r->bytes = (u64)s->sizes[1] << 32 | s->sizes[0];
	r->stream = (u64)s->sizes[3] << 32 | s->sizes[2];
	r->aux = (u64)s->sizes[5] << 32 | s->sizes[4];
	r->ret = s->sizes[6];
	r->run_delay = number;
	submit(r);
	if (number)
		shapes.insert(s, &number); /* where another CPU was faster, the shape has two numbers */
	return number;
}

static __always_inline u32 number_of(struct shape *s, u32 pid, u32 tid)
{
	u32 *known = shapes.lookup(s);
	return known ? *known : report_shape(s, pid, tid);
}
