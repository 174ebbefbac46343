# bats file_tags=more
# The page of muster-report html in its real reader, a browser: what its script shows, and what it does with a pointer.
load ../helpers

setup() {
    need chromium
    DIR=$BATS_TEST_TMPDIR
    cd "$DIR"
}

# dom FILE [SCRIPT]: what the browser shows of the page, once the script has run after the page's own
dom() {
    { cat "$1"; echo "<script>${2:-}</script>"; } >opened.html
    timeout 120 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$DIR/profile" --window-size=1000,800 \
        --dump-dom "file://$DIR/opened.html" 2>browser.err | sed '/<script/,$d' >dom
    grep -q '<h1>' dom
    [ "$(grep -c 'NaN\|undefined\|Infinity' dom)" -eq 0 ]
}

# count TEXT N: dom has that text N times
count() {
    echo "$1: $(grep -o -- "$1" dom | wc -l), not $2?"
    [ "$(grep -o -- "$1" dom | wc -l)" -eq "$2" ]
}

# steps FILE FIRST LAST RANKS LOSS: lines of metrics; the loss is an expression of awk
steps() {
    awk -v first="$2" -v last="$3" -v world="$4" 'BEGIN {
        rest = "\"lr\":0.0003,\"grad_norm\":0.7,\"loss_scale\":1,\"skipped\":0,\"step_seconds\":0.5"
        rest = rest ",\"tokens_per_second\":12000,\"tflops\":1.25,\"mfu\":0.41,\"hfu\":0.41,\"tp\":1,\"pp\":1"
        for (s = first; s <= last; s++)
            printf "{\"step\":%d,\"consumed_samples\":%d,\"loss\":%.7f,\"world\":%d,\"dp\":%d,\"time\":%d,%s}\n",
                s, 256 * s, '"$5"', world, world, 1764000000 + s, rest }' >>"$1"
}

# went_on FILE STEP NODE: an event of a restart
went_on() {
    local t=$((1764000000 + $2))
    echo "{\"event\":\"start\",\"step\":$2,\"repeated\":3,\"last\":$t,\"job\":\"17\",\"job_began\":1764000000," \
        "\"drain_seconds\":0.5,\"ready\":$((t + 9)),\"fault\":$t,\"ended\":$((t + 1)),\"checked\":$((t + 2))," \
        "\"nodes\":\"$3\",\"hang\":\"$DIR/hang-$3\",\"cause\":\"a rank on $3 is dead\"}" >>"$1.events"
    echo "{\"event\":\"first_step\",\"first_step\":$((t + 10))}" >>"$1.events"
}

# pointer TEXT: a script that moves the pointer over the first panel, until what it shows has the text
pointer() {
    echo "const svg = document.querySelector('svg'), box = svg.getBoundingClientRect();
        for (let x = box.left; x < box.right && !document.querySelector('#tip').textContent.includes('$1'); x++)
            svg.dispatchEvent(new PointerEvent('pointermove', { clientX: x, clientY: box.top + 99 }));"
}

@test "a run that went on with fewer ranks: losses, validations, meshes and the restart are shown" {
    need mpiexec.mpich
    tiny_job "$DIR"
    echo "checkpoint = { dir = \"$DIR/ckpt\"; every = 10; };" >>job.cfg
    ranks 2 muster-train job.cfg --set batch.steps=20 >log
    ranks 1 muster-train job.cfg --set batch.steps=30 >>log
    muster-report html metrics.jsonl -o page.html
    [ "$(grep -o 'https\?://[^"]*' page.html | grep -vc '^http://www.w3.org/')" -eq 0 ]
    dom page.html
    cat dom
    grep -q '<h1>metrics.jsonl</h1>' dom
    for panel in loss tokens/s 'MFU, %' 'seconds a step' 'gradient norm' 'learning rate'; do
        count "aria-label=\"$panel\"" 1
    done
    count 'aria-label' 6
    loss=$(tail -n 1 metrics.jsonl | sed 's/.*"loss":\([^,]*\),.*/\1/')
    count "<td>$(printf %.4f "$loss")</td>" 1
    count '<circle' "$(grep -c valid_loss metrics.jsonl)"
    count 'class="label"[^>]*>#1 2→1<' 1
    count '<td>1 to 20</td><td>2</td>' 1
    count '<td>21 to 30</td><td>1</td>' 1
    count '<td>#1</td><td>20</td><td>0</td>' 1
    count '<td>3</td><td>30</td>' 1
    count 'class="saved" d="M[^M"]*v-5M[^M"]*v-5M[^M"]*v-5"' 1
    count '<td>[1-9][0-9]* MiB</td><td>[1-9][0-9]* MiB</td>' 1
}

@test "runs are compared: the pointer shows each, smoothing and the log scale draw anew" {
    mkdir a b
    steps a/metrics.jsonl 1 100 4 '3 + 8 / s'
    steps b/metrics.jsonl 1 80 4 '4 + 8 / s'
    steps b/metrics.jsonl 81 100 2 '4 + 8 / s'
    muster-report html "$DIR/a/metrics.jsonl" "$DIR/b/metrics.jsonl" >page.html
    dom page.html "$(pointer 'step 50:')"
    grep -q '<h1>2 runs</h1>' dom
    count 'class="curve"' 12
    count 'class="band"' 0
    count '</i>a/metrics.jsonl</span> step 50: 3.16<' 1
    count '</i>b/metrics.jsonl</span> step 50: 4.16<' 1
    dom page.html "$(pointer 'step 80:')"
    count '4→2 after step 80: 4 ranks (dp 4, tp 1, pp 1) → 2 ranks (dp 2, tp 1, pp 1)' 1
    grep -o 'class="curve" d="[^"]*"' dom | head -n 1 >linear
    grep -q M linear
    dom page.html "document.querySelector('#log').click()"
    count 'class="band"' 0
    [ "$(grep -cFf linear dom)" -eq 0 ]
    dom page.html "document.querySelector('#smooth').value = 0.9; document.querySelector('form').oninput()"
    count 'class="band"' 10 # all but the learning rate
    count '<output>0.90</output>' 1
    [ "$(grep -cFf linear dom)" -eq 0 ]
}

@test "odd lines among the events do not stop the page, nor what is no file in the place of a hang report" {
    steps run.jsonl 1 9 4 5
    mkdir hang-fifo hang-link
    mkfifo hang-fifo/hang-report.txt
    ln -s run.jsonl hang-link/hang-report.txt
    cat >run.jsonl.events <<END
{"event":"checkpoint","seconds":1.5}
{"event":"checkpoint","step":4,"seconds":"</script>"}
{"event":"checkpoint","step":6,"seconds":2.5,"more":[1,2]}
{"event":"start","step":8,"job":3,"hang":"$DIR/hang-fifo"}
{"event":"start","hang":"$DIR/hang-link"}
{"event":"start","hang":7}
{"event":"where","steps":9e99,"mean":{"computing":1}}
{"event":"where","steps":3,"mean":7,"gpus":null,"device_mib":"x","host_mib":12}
{"event":"where","steps":2,"mean":{"computing":1},"gpus":[1],"device_mib":{}}
END
    timeout 20 muster-report html run.jsonl -o page.html
    dom page.html
    count 'class="curve"' 6
    count '<td>3</td><td>8</td><td>2.50</td><td>12 MiB</td>' 1
    count 'Hang report' 0
    timeout 20 muster-report where run.jsonl
}

@test "a run that is going on: a torn line is left out, and the next page has more" {
    steps run.jsonl 1 3 4 '3 + 8 / s'
    printf '{"step":4,"cons' >>run.jsonl
    muster-report html run.jsonl -o page.html
    dom page.html
    count '<td>3</td><td>5.6667</td>' 1
    sed -i '$d' run.jsonl
    steps run.jsonl 4 4 4 '3 + 8 / s'
    muster-report html run.jsonl -o page.html
    dom page.html
    count '<td>4</td><td>5.0000</td>' 1
    steps one.jsonl 1 1 4 5
    muster-report html one.jsonl -o page.html
    dom page.html
    count 'class="curve"' 6
}

@test "100,000 steps over 12 restarts: a small page within seconds, and a spike of one step is seen" {
    for i in {0..12}; do
        steps run.jsonl $((i * 7700 + 1)) $((i < 12 ? (i + 1) * 7700 : 100000)) $((4 - i % 2)) \
            's == 50123 ? 9.75 : 3 + 8 / s'
        [ "$i" = 0 ] || went_on run.jsonl $((i * 7700)) "n$i"
        mkdir hang-n$i
        { echo "rank $i on n$i is stopped, </script><b>it says"; yes 'rank 1 waits' | head -n 1999; } >hang-n$i/hang-report.txt
        seq $((i * 7700 + 100)) 100 $((i < 12 ? (i + 1) * 7700 : 100000)) |
            sed 's/.*/{"event":"checkpoint","step":&,"seconds":1.25}/' >>run.jsonl.events
    done
    time timeout 60 muster-report html run.jsonl -o page.html
    stat -c '%s bytes' page.html
    [ "$(stat -c %s page.html)" -lt 2000000 ]
    dom page.html "$(pointer 9.75)"
    count 'step 50,[0-9]* to 50,[0-9]*: 3.[0-9]* (3.0002 to 9.75)' 1
    count '<td>100,000</td>' 2
    count 'class="label"' 12
    count '#12 4→[34]\|#12 3→4' 1
    count 'a rank on n12 is dead' 1
    count '<td>1,000</td><td>100,000</td><td>1.25</td>' 1
    count 'Hang report of job 17 that began at ' 12
    count 'all of it is in /.*/hang-n[0-9]*/hang-report.txt' 12
    count 'rank 12 on n12 is stopped, &lt;/script&gt;&lt;b&gt;it says' 1
}
