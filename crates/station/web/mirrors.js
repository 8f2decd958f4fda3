(()=>{async function et(r){let t=r instanceof Response?await r.arrayBuffer():r,{instance:e}=await WebAssembly.instantiate(t);return(o,n,s)=>new Y(e.exports,o,n,s)}var Y=class{#e;#r;constructor(t,e="full",o=[],n=!1){if(this.#e=t,tt<o.length)throw new RangeError("there are too many horizons");if(this.#t().set(o.map(Q)),this.#r=t.battery_new(It.indexOf(e),o.length,Number(n)),this.#r===0)throw new RangeError("there are too many batteries, or a horizon is out of range")}update(t,e=NaN){return this.#e.battery_update(this.#r,t,e)===1}forecast(t=J,e=NaN){if(this.#e.battery_forecast(this.#r,t,e)===0)return null;let o=this.#t();return{count:o[0],level:t,...this.#o(o)}}ahead(t,e="mean",o=J){if(this.#e.battery_ahead(this.#r,o,Q(t),+(e!=="mean"))===0)return null;let s=this.#t(),[a,c,...i]=s.slice(15);return{...t,of:e,scored:a,...this.#o(s),basis:["own","between","beyond"][c],from_steps:i.filter(Number.isFinite)}}free(){this.#e.battery_free(this.#r),this.#r=0}#t(){let t=this.#e.numbers();return new Float64Array(this.#e.memory.buffer,t,tt)}#o(t){let e=n=>Number.isNaN(t[n])?null:t[n],o=(n,s,a)=>({value:e(n),mse:e(n+1),mae:e(n+2),recent_mse:e(n+3),recent_mae:e(n+4),method:this.#s(s),weight:e(a)});return{mean:o(1,0,13),median:o(6,1,14),lower:e(11),upper:e(12)}}#s(t){let{memory:e,method:o,method_length:n}=this.#e;return String.fromCharCode(...new Uint8Array(e.buffer,o(t),n(t)))}},It=Object.freeze(["full","nws","mse","mae"]),J=.9;function Q({seconds:r,steps:t}){return r===void 0?-Math.max(0,t):Math.max(0,r)}var tt=19;function rt(r){let t=0;return r.addEventListener("visibilitychange",()=>{r.hidden&&(t+=1)}),{get hidden_count(){return t},async ready(e){r.hidden&&await new Promise((o,n)=>{let s=()=>{r.hidden&&!e?.aborted||(r.removeEventListener("visibilitychange",s),e?.removeEventListener("abort",s),e?.aborted?n(e.reason):o())};r.addEventListener("visibilitychange",s),e?.addEventListener("abort",s),s()})}}}function nt(r,t,e={}){if(!(Number.isFinite(t)&&0<t))return null;let o=r*8,n=Math.min(ot(e.forecast_s),ot(e.least_s),t/2);return{raw:o/t,corrected:o/(t-n)}}function ot(r){return Number.isFinite(r)&&0<r?r:0}var L=class{#e;#r;#t=0;#o=0;#s=0;#n=0;#i=0;constructor(t){this.#e=t(),this.#r=t()}update(t){let e=Math.log(t);if(!this.#r.update(e))return!1;this.#t!==0&&(this.#i+=(e-this.#n)**2),this.#n=e,this.#t+=1;let o=e-this.#o;return this.#o+=o/this.#t,this.#s+=o*(e-this.#o),this.#e.update(H/t)}forecast(t=1){let e=this.#e.forecast()?.mean,o=this.#r.forecast();if(!e||o===null)return null;let n=this.#i<Ot*this.#s,s=Math.min(Math.max(1,Math.ceil(t)),Ct),{lower:a,upper:c}=n?this.#r.ahead({steps:s}):o,{count:i,level:l}=o,u=w=>w===null?null:Math.exp(w),m=0<e.value?H/e.value:u(o.mean.value),y=e.mae===null?null:e.mae*m/H;return{count:i,level:l,value:m,lower:u(a),upper:u(c),error:y,method:e.method}}free(){this.#e.free(),this.#r.free()}},H=8*2**20,Ot=1,Ct=1e6;var A=class extends Error{constructor(t){super(`took more than ${t/1e3} s`),this.name="TimedOut"}};function _(r,t,e){return new Promise((o,n)=>{let s=new AbortController,a=(u,m)=>{clearTimeout(l),t?.removeEventListener("abort",i),u(m)},c=u=>{a(n,u),s.abort(u)},i=()=>c(t.reason),l=setTimeout(()=>c(new A(r)),r);if(t?.aborted)return i();t?.addEventListener("abort",i,{once:!0}),new Promise(u=>u(e(s.signal))).then(u=>a(o,u),u=>a(n,u))})}var Fe=2**28;var st=.5;var zt=3;var Ie=2**zt-1;var B=class{#e;#r;#t;constructor({mirrors:t,budget_bytes:e,seed:o}){if(!(E.least<=e&&e<=E.most))throw new RangeError("The budget of a mirror must be from 256 KiB to 256 MiB.");this.#e=e,this.#r=Dt(o);let n=Ut(e);this.#t=Array.from({length:t},()=>({size_index:ct(n),top:n,spent_bytes:0,spent_s:0,probes:0,scored:0,done:!1}))}round(){let t=[...this.#t.keys()].filter(e=>0<this.bytes(e));for(let e=t.length-1;0<e;e-=1){let o=Math.floor(this.#r()*(e+1));[t[e],t[o]]=[t[o],t[e]]}return t}bytes(t){let{size_index:e,spent_bytes:o,spent_s:n,scored:s,done:a}=this.#t[t];return a||it<=s||lt<=s&&at<n?0:k[e]+S<=this.#e-o?k[e]:0}spentBytes(t){return this.#t[t].spent_bytes}leftBytes(t){return Math.max(0,this.#e-this.#t[t].spent_bytes-S)}record(t,e,o,n=!0){let s=this.#t[t];if(s.spent_bytes+=e+S,s.spent_s+=o,s.probes+=1,!n)return!1;if(s.size_index<s.top){if(o<st)return s.size_index+=1,!1;s.top=s.size_index}return s.probes===1?!1:(s.scored+=1,!0)}recordFailure(t,e){this.#t[t].spent_bytes+=e+S}finish(t){this.#t[t].done=!0}progress(){let t=this.#t.map((e,o)=>this.bytes(o)===0?1:Math.max(e.spent_bytes/this.#e,e.scored/it,e.spent_s/at));return t.length===0?1:t.reduce((e,o)=>e+Math.min(1,o),0)/t.length}},E={least:2**18,usual:2**23,most:2**28},S=1024;function Ut(r){let t=0;for(let e=1;e<k.length;e+=1){let o=(lt+1)*(k[e]+S);for(let n=ct(e);n<e;n+=1)o+=k[n]+S;o<=r&&(t=e)}return t}function ct(r){return Math.min(r,1)}function Dt(r){let t=r>>>0;return()=>{t=t+1831565813>>>0;let e=Math.imul(t^t>>>15,t|1);return e^=e+Math.imul(e^e>>>7,e|61),((e^e>>>14)>>>0)/2**32}}var k=Array.from({length:10},(r,t)=>2**(15+t)),lt=11,it=24,at=30;function ht(r,t){let e=r.map(i=>({...i,...i.failure?null:Pt(i,t)})),o=e.filter(i=>Number.isFinite(i.time_s)).sort((i,l)=>i.time_s-l.time_s),n=e.filter(i=>!Number.isFinite(i.time_s)).map(i=>({...i,rank:null,failure:i.failure??"too few probes succeeded"})),s=o.map((i,l)=>({...i,rank:l+1,close:Gt(o[0],i)})),a=s.filter(i=>i.close).length;return{verdict:s.length===0?"none":s.length===1?"only":a<2?"first":"close",close:a,mirrors:[...s,...n]}}function Pt({url:r,kind:t,rtt:e,goodput:o},n){if(!(0<o?.value))return null;let s=Xt(r,t)*Math.max(0,e?.value??0),a=l=>s+(0<l?n*8/l:1/0),c=a(o.value),i=Number.isFinite(o.lower)&&Number.isFinite(o.upper);return{time_s:c,lower_s:i?Math.min(c,a(o.upper)):null,upper_s:i?Math.max(c,a(o.lower)):null}}function Xt(r,t){return t==="download"?1:r.startsWith("https:")?3:2}function Gt(r,t){return r===t?!0:ut(r.time_s,t)||ut(t.time_s,r)}function ut(r,{lower_s:t,upper_s:e}){return t===null||t<=r&&r<=e}async function ft({mirrors:r,size_bytes:t,budget_bytes:e,seed:o,signal:n,onProgress:s=()=>{},battery:a,open:c,explain:i,visibility:l}){let u=new B({mirrors:r.length,budget_bytes:e,seed:o}),m=r.map(d=>new j(d,a)),y=(d=null)=>{let p=m.map((f,b)=>({url:f.mirror.url,state:f.word(b===d),probes:f.probes}));s({share:u.progress(),mirrors:p})},w=async(d,p)=>{let f=m[d];f.stop(),u.finish(d),f.failure=await Yt(i,f.mirror,p,n)};try{y();let d=Promise.resolve();await Promise.all(m.map(async(p,f)=>{try{if(p.mirror.refusal)throw new Error(p.mirror.refusal);await p.open(c,n),p.source.ignores_range&&(d=d.then(()=>R(f)))}catch(b){n?.throwIfAborted(),await w(f,b)}y()})).finally(()=>d.catch(()=>{})),await d;for(let p=u.round();p.length!==0;p=u.round())for(let f of p)await R(f);return ht(m.map((p,f)=>p.result(u.spentBytes(f),t)),t)}finally{for(let d of m)d.free()}async function R(d){await l.ready(n),n?.throwIfAborted(),y(d),await P(m[d],d),y()}async function P(d,p){let f=d.source?.ignores_range,b=f?u.leftBytes(p):u.bytes(p),{hidden_count:$}=l;try{d.source===null&&await d.open(c,n);let{parts:v,rtts_s:X,least_rtt_s:G,came_bytes:Lt=v[0].bytes}=await _(Ht,n,W=>d.source.probe(b,W)),Z=l.hidden_count===$,Bt=u.record(p,Lt,v.reduce((W,Ft)=>W+Ft.took_s,0),Z)||f&&Z;d.learn(v,X,G,Bt),f&&u.finish(p)}catch(v){n?.throwIfAborted(),u.recordFailure(p,b),(d.fail()||f)&&await w(p,v)}}}var j=class{source=null;probes=0;failures=0;failure=null;#e=0;#r=0;#t;#o;constructor(t,e){this.mirror=t,this.#t=e(),this.#o=new L(e)}async open(t,e){this.source=await _(dt,e,async o=>{let n=await t(this.mirror,o);return o.aborted&&n.close(),n})}learn(t,e,o,n){this.#e=0,this.probes+=t.length;let s=this.#t.forecast()?.median.value??e[0];if(n){for(let a of e)this.#t.update(a);for(let{bytes:a,took_s:c,streamed:i}of t){let l=nt(a,c,i?{}:{forecast_s:s,least_s:o});l!==null&&this.#o.update(l.corrected)&&(this.#r=a)}}}fail(){return this.failures+=1,this.#e+=1,this.stop(),jt<=this.#e}stop(){this.source?.close(),this.source=null}word(t){return this.failure!==null?"failed":t?"probing":this.source===null&&this.probes===0?"opening":"waiting"}result(t,e){let{url:o,kind:n}=this.mirror,s=this.#o.forecast(e/Math.max(1,this.#r)),a=Vt<=(s?.count??0);return{url:o,kind:n,rtt:a?Wt(this.#t.forecast()):null,goodput:a?s:null,bytes:t,probes:this.probes,failures:this.failures,failure:this.failure}}free(){this.stop(),this.#t.free(),this.#o.free()}};function Wt({count:r,level:t,lower:e,upper:o,median:{value:n,mae:s,method:a}}){return{count:r,level:t,value:n,lower:e,upper:o,error:s,method:a}}async function Yt(r,t,e,o){if(t.refusal||e instanceof A)return t.refusal??e.message;try{return await _(dt,o,n=>r(t,e,n))}catch{return e.message}}var dt=6e3,Ht=1e4,jt=2,Vt=4;var F=class r{#e;#r;#t;#o=null;ignores_range=!1;static async open(t,{signal:e,fetch:o=globalThis.fetch.bind(globalThis),now:n=()=>performance.now()}={}){let s=new r(t,o,n),a=new AbortController,c=()=>a.abort(e.reason);e?.throwIfAborted(),e?.addEventListener("abort",c,{once:!0});try{let i=await s.#s(1,a.signal),{status:l,headers:u}=i.response;s.ignores_range=l===200&&u.get("content-length")!=="1",s.ignores_range?s.#o=i:await i.response.arrayBuffer()}finally{e?.removeEventListener("abort",c)}return s}constructor(t,e,o){this.#e=t,this.#r=e,this.#t=o}async probe(t,e){let{response:o,asked_ms:n,answered_ms:s}=this.#o??await this.#s(t,e);this.#o=null;let a=this.#t()-s,c=await this.#n(o,t,e),i=[(s-n)/1e3],l=c.at(-1);if(!l||l.got<Qt)throw new Error("the file is too small to measure");let u=l.got;return this.ignores_range?{parts:Kt(c,a<Jt?1/4:1/2),rtts_s:i,came_bytes:u}:{parts:[{bytes:l.got,took_s:(l.at_ms-n)/1e3,streamed:!1}],rtts_s:i,least_rtt_s:i[0],came_bytes:u}}close(){this.#o?.response.body?.cancel().catch(()=>{}),this.#o=null}async#s(t,e){let o=this.#t(),n=await this.#r(this.#e,{signal:e,mode:"cors",cache:"no-store",credentials:"omit",referrerPolicy:"no-referrer",headers:{range:`bytes=0-${t-1}`}}),s=this.#t();if(n.status!==206&&n.status!==200)throw await n.body?.cancel(),new Error(n.status===416?"the file is empty":`answered with status ${n.status}`);return{response:n,asked_ms:o,answered_ms:s}}async#n(t,e,o){o?.throwIfAborted();let n=t.body.getReader(),s=()=>n.cancel(o.reason).catch(()=>{});o?.addEventListener("abort",s,{once:!0});let a=[],c=this.#t(),i=0;try{for(;i<e;){let{done:l,value:u}=await n.read();if(o?.throwIfAborted(),l||(i+=u.byteLength,a.push({got:i,at_ms:this.#t()}),this.ignores_range&&Zt<this.#t()-c))break}}finally{o?.removeEventListener("abort",s),n.cancel().catch(()=>{})}return a}};async function pt(r,t,{signal:e,fetch:o=globalThis.fetch.bind(globalThis)}={}){if(!(t instanceof TypeError))return t.message;try{return await o(r,{method:"HEAD",mode:"no-cors",cache:"no-store",credentials:"omit",referrerPolicy:"no-referrer",signal:e}),"the site does not allow measurements from other pages"}catch{return globalThis.crossOriginIsolated?"could not be reached, or does not allow measurements from other pages":"could not be reached"}}function Kt(r,t){let e=r.at(-1).got,o=[],n=null;for(let s of r)s.got<e*t||n!==null&&(s.got-n.got<e*(1-t)/qt||s.at_ms<=n.at_ms)||(n!==null&&o.push({bytes:s.got-n.got,took_s:(s.at_ms-n.at_ms)/1e3,streamed:!0}),n=s);return o}var qt=12,Zt=8e3,Jt=50,Qt=2**14;function mt(r){return/^(.*\.)?localhost$/.test(r)||/^127(\.\d+){3}$/.test(r)||r==="[::1]"}function O(r,{secure:t=!1}={}){let e=Array.isArray(r)?r.map(String):String(r??"").split(/[\s,]+/),o=new Map;for(let n of e.map(s=>s.trim()).filter(Boolean)){let s=te(n,t);if(o.set(s.url,s),bt<o.size)throw new RangeError(`At most ${bt} mirrors can be compared. Remove some.`)}if(o.size===0)throw new RangeError("Enter the address of at least one mirror.");return[...o.values()]}function I(r){return r.replace(/^[a-z]+:\/\//,"").replace(/\/$/,"")}function gt(r,t){let e=o=>I(o).split("/")[0];return t.filter(o=>e(o)===e(r)).length<2?e(r):I(r)}function te(r,t){let e;try{e=new URL(/^[a-z][a-z0-9+.-]*:\/\//i.test(r)?r:`https://${r}`)}catch{return{url:r.slice(0,wt),kind:"download",refusal:"is not an address"}}let o=/^wss?:$/.test(e.protocol);o&&(e=new URL(e.href.replace(/^ws/,"http"))),e.hash="";let n=o||e.pathname.endsWith("/")?"station":"download";return{url:e.href,kind:n,refusal:ee(e,t)}}function ee(r,t){return/^https?:$/.test(r.protocol)?r.username||r.password?"remove the user name and password from the address":wt<r.href.length?"the address is too long":t&&r.protocol==="http:"&&!mt(r.hostname)?"an https page cannot measure http addresses; use an https address":null:`${r.protocol} cannot be measured, only http: and https:`}var bt=32,wt=2e3;function yt(r,{nonce:t=""}={}){let e=ne(),o=rt(document),n=null;return async function(a={}){let{mirrors:c,size_bytes:i,budget_bytes:l=E.usual,seed:u=se(),signal:m,onProgress:y}=a;if(!(Number.isFinite(i)&&1<=i))throw new RangeError("size_bytes must be the size of the file, at least 1.");let w=O(c,{secure:location.protocol==="https:"});n??=_(V,void 0,f=>re(r,f));let R=await _(V,m,()=>n).catch(f=>{throw n=null,f});w.some(({kind:f,refusal:b})=>f==="station"&&!b)&&await _(V,m,()=>oe(r,t)).catch(f=>{m?.throwIfAborted();for(let b of w)b.kind==="station"&&(b.refusal??=f.message)});let{Station:P}=window.barographMirrors;return ft({mirrors:w,size_bytes:i,budget_bytes:l,seed:u,signal:m,onProgress:y,battery:R,open:({kind:f,url:b},$)=>(f==="station"?P:F).open(b,{signal:$}),explain:async({kind:f,url:b},$,v)=>{let X=f==="station"?$.message:await pt(b,$,{signal:v});return await new Promise(G=>setTimeout(G)),e.has(new URL(b).host)?ie:X},visibility:o})}}async function re(r,t){let e=await fetch(new URL("forecast.wasm",r),{signal:t,credentials:"omit"}).catch(()=>null);if(!e?.ok)throw new Error(`The forecaster could not be loaded from ${r.host}. Check the connection, then compare again.`);try{return await et(e)}catch(o){throw o instanceof WebAssembly.CompileError?new Error("This page's Content-Security-Policy does not allow WebAssembly: its script-src needs 'wasm-unsafe-eval'."):o}}async function oe(r,t){if(window.barographMirrors.Station)return;let e=document.createElement("script");t&&(e.nonce=t),e.src=new URL("mirrors-stations.js",r).href,await new Promise((o,n)=>{e.onload=o,e.onerror=()=>n(new Error(`the script that measures stations could not be loaded from ${r.host}`)),document.head.append(e)}).finally(()=>e.remove())}function ne(){let r=new Set;return document.addEventListener("securitypolicyviolation",({effectiveDirective:t,blockedURI:e})=>{if(!(t!=="connect-src"||ae<=r.size))try{r.add(new URL(e).host)}catch{}}),r}function se(){return crypto.getRandomValues(new Uint32Array(1))[0]}var ie="this page's own Content-Security-Policy does not allow this address; add it to connect-src",V=15e3,ae=1e3;function q(r){let t=/^([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([A-Za-z]*)$/.exec(String(r??"").trim().slice(0,ue));if(!t)throw new RangeError("Write a size as a number and a unit, such as 700 MB or 4.5 GiB.");let[,e,o]=t,n=ce.get(o.toLowerCase());if(n===void 0){let a=/^[kmgt]$/i.test(o)?`${o.toUpperCase()}B or ${o.toUpperCase()}iB`:"B, kB, MB, GB, TB, KiB, MiB, GiB or TiB";throw new RangeError(`“${o}” is not a unit of size: write ${a}.`)}let s=Math.round(Number(e)*n);if(s<1)throw new RangeError("A size must be at least 1 byte.");if(le<s)throw new RangeError("A size must be at most 1000 TB.");return s}function N(r){let t=K.filter(([,a])=>a<=r&&r*10%a===0),[e,o]=t.reduce((a,c)=>a[1]<c[1]?c:a,["B",1]);if(r/o<1e4)return`${r/o} ${e}`;let[n,s]=K.filter(([a,c])=>!a.includes("i")&&c<=r).at(-1);return`${Number((r/s).toPrecision(3))} ${n}`}var K=[["B",1],["kB",1e3],["KiB",2**10],["MB",1e6],["MiB",2**20],["GB",1e9],["GiB",2**30],["TB",1e12],["TiB",2**40]],ce=new Map([["",1],["byte",1],["bytes",1],...K.map(([r,t])=>[r.toLowerCase(),t])]),le=1e15,ue=40;function h(r,t={},...e){let o=document.createElement(r);for(let[n,s]of Object.entries(t))o.setAttribute(n,s);return o.append(...e),o}function M(r,t){r.textContent!==t&&(r.textContent=t)}function he(r,t){let e=me[r];if(!e)return{factor:1,label:r};let o=Math.abs(t);return e.find(n=>n.from<=o)??e[e.length-1]}function x(r,t){if(!Number.isFinite(r))return C;let e=he(t,r);return pe(fe(r,e),e.label)}function fe(r,t){return Number.isFinite(r)?de(r*t.factor,t.extra):C}function de(r,t=0){let e=Math.abs(r);if(e===0)return"0";if(e<.001||1e9<=e)return r.toExponential(2).replace("-",$t);let o=e<.01?5:e<.1?4:e<1?3:e<10?2:e<100?1:0;return Mt(r.toFixed(o+t))}function _t(r){return Number.isFinite(r)?Mt(String(Math.trunc(r))):C}function xt(r){if(!Number.isFinite(r))return C;let t=Math.max(0,Math.floor(r));return t<60?`${t}${g}s`:t<3600?`${Math.floor(t/60)}${g}min ${t%60}${g}s`:t<86400?`${Math.floor(t/3600)}${g}h ${Math.floor(t%3600/60)}${g}min`:`${Math.floor(t/86400)}${g}d ${Math.floor(t%86400/3600)}${g}h`}function vt(r){return Number.isFinite(r)?`${Math.round(r*1e3)/10}${g}%`:""}var C="–";function pe(r,t){return t?`${r}${g}${t}`:r}function Mt(r){let[t,e]=r.replace("-",$t).split("."),o=t.replace(/\B(?=(\d{3})+(?!\d))/g,g);return e===void 0?o:`${o}.${e}`}var g=" ",$t="−";var me={s:[{from:120,factor:1/60,label:"min"},{from:1,factor:1,label:"s"},{from:.001,factor:1e3,label:"ms"},{from:0,factor:1e6,label:"µs"}],"bit/s":[{from:1e9,factor:1e-9,label:"Gbit/s"},{from:1e6,factor:1e-6,label:"Mbit/s"},{from:1e3,factor:.001,label:"kbit/s"},{from:0,factor:1,label:"bit/s"}],bytes:[{from:2**40,factor:2**-40,label:"TiB",extra:1},{from:2**30,factor:2**-30,label:"GiB",extra:1},{from:2**20,factor:2**-20,label:"MiB"},{from:2**10,factor:2**-10,label:"KiB"},{from:0,factor:1,label:"B"}],ratio:[{from:0,factor:100,label:"%"}]};var St=`/* The colours of the station's page (../page.css). */
:host {
  --card: #f8faf7;
  --sheet: #fcfdfb;
  --ahead: #f1f4ef;
  --minor: #e1ece4;
  --major: #bfd6c7;
  --edge: #8fb09b;
  --rule: #cbd6ce;
  --text: #1b2420;
  --label: #566560;
  --measured: #3b2c8f;
  --forecast: #c2560c;
  --forecast-text: #a04404;
  --band: rgb(220 120 30 / 0.3);
  --failure: #7a1f3d;
  --good: #1d7a4f;
  --trouble: #fff0d9;
  display: block;
  container-type: inline-size;
  color-scheme: light;
  color: var(--text);
  font: 14px/1.4 system-ui, sans-serif;
  font-variant-numeric: tabular-nums;
  text-align: start;
}
:host([data-theme='dark']) {
  --card: #141b19;
  --sheet: #111816;
  --ahead: #17201d;
  --minor: #1a2521;
  --major: #2a3b34;
  --edge: #4d6a5d;
  --rule: #26332e;
  --text: #e3ebe6;
  --label: #93a59c;
  --measured: #a9a5ff;
  --forecast: #f39a4a;
  --forecast-text: #f5a55c;
  --band: rgb(243 154 74 / 0.35);
  --failure: #ff8fa8;
  --good: #5fcf9b;
  --trouble: #3a2a12;
  color-scheme: dark;
}
* { box-sizing: border-box; }
[hidden] { display: none !important; }
section {
  background: var(--card);
  border: 1px solid var(--rule);
  border-radius: 3px;
  padding: 0.8rem 1rem 0.9rem;
}
header {
  display: flex;
  align-items: center;
  gap: 0.75rem;
}
h2 {
  flex: 1;
  margin: 0;
  font-size: 1.1rem;
  font-weight: 650;
}
h2 small { font-weight: 400; color: var(--label); }
p { margin: 0.25rem 0 0; }
.cost { color: var(--label); font-size: 0.86rem; }
button {
  font: inherit;
  color: inherit;
  background: var(--card);
  border: 1px solid var(--rule);
  border-radius: 3px;
  padding: 0.25rem 0.8rem;
  min-height: 2.25rem;
  cursor: pointer;
}
button:hover { border-color: var(--edge); }
.go { background: var(--measured); border-color: var(--measured); color: var(--card); font-weight: 600; }
[data-state='done'] .go { background: none; border-color: var(--rule); color: inherit; font-weight: 400; }
:focus-visible { outline: 2px solid var(--measured); outline-offset: 2px; }
a { color: var(--measured); }
.bar { display: flex; align-items: center; gap: 0.75rem; margin-top: 0.6rem; }
progress {
  flex: 1;
  appearance: none;
  height: 0.6rem;
  border: 1px solid var(--edge);
  border-radius: 2px;
  background: var(--sheet);
  overflow: hidden;
}
progress::-webkit-progress-bar { background: var(--sheet); }
progress::-webkit-progress-value { background: var(--measured); }
progress::-moz-progress-bar { background: var(--measured); }
.turns { list-style: none; margin: 0.6rem 0 0; padding: 0; font-size: 0.86rem; }
.turns li {
  display: flex;
  justify-content: space-between;
  gap: 1rem;
  padding: 0.15rem 0.4rem;
  border-left: 3px solid transparent;
}
.turns li + li { border-top: 1px solid var(--minor); }
.turns li[data-state='probing'] { border-left-color: var(--measured); background: var(--ahead); }
.turns li > :last-child { color: var(--label); white-space: nowrap; }
.turns li[data-state='failed'] > :last-child { color: var(--failure); }
.verdict { font-size: 1.05rem; font-weight: 600; overflow-wrap: anywhere; }
.verdict:not(:empty) { margin-top: 0.7rem; padding: 0.5rem 0.75rem; border-left: 4px solid var(--edge); background: var(--ahead); }
.verdict.first, .verdict.only { border-left-color: var(--good); }
.verdict.close { border-left-color: var(--forecast); background: var(--trouble); }
.verdict.none, .verdict.trouble { border-left-color: var(--failure); }
.table { margin-top: 0.7rem; }
table { width: 100%; border-collapse: collapse; background: var(--sheet); border: 1px solid var(--rule); }
th, td { padding: 0.45rem 0.6rem; text-align: right; font-weight: 400; vertical-align: top; }
thead th { background: var(--ahead); color: var(--label); font-size: 0.76rem; white-space: nowrap; }
tbody tr { border-top: 1px solid var(--minor); }
.place, th:first-child { width: 2.4rem; text-align: right; color: var(--label); }
.name, th:nth-child(2), .time, th:nth-child(3), .reason { text-align: left; }
.name { width: 23%; overflow-wrap: anywhere; }
.mirror { font-weight: 600; }
.mirror small { font-weight: 400; color: var(--label); font-size: 0.85em; }
.name small { display: inline-block; }
.time { width: 32%; }
.time strong { font-size: 1.1rem; color: var(--forecast-text); margin-right: 0.6rem; white-space: nowrap; }
.aside { color: var(--label); font-size: 0.82rem; white-space: nowrap; }
svg { display: block; margin-top: 0.25rem; overflow: visible; }
.axis { stroke: var(--major); }
.band { fill: var(--band); }
.mark { fill: var(--forecast); }
.goodput, .rtt, .probes, .used { white-space: nowrap; }
.trust { display: block; white-space: normal; line-height: 1.2; }
.first .place { color: var(--good); font-weight: 700; }
.tied .place { color: var(--forecast-text); font-weight: 700; }
.first { box-shadow: inset 3px 0 var(--good); }
.tied { box-shadow: inset 3px 0 var(--forecast); }
.reason { color: var(--failure); }
.failed .mirror { font-weight: 400; }
details { margin-top: 0.7rem; color: var(--label); font-size: 0.86rem; }
summary { cursor: pointer; }
details ul { margin: 0.4rem 0 0; padding-left: 1.2rem; max-width: 46rem; }
details li { margin-top: 0.25rem; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }

@container (max-width: 40rem) {
  section { padding-inline: 0.7rem; }
  table, tbody { display: block; }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  tbody tr { display: grid; grid-template-columns: 1.7rem repeat(2, 1fr); gap: 0.1rem 0.5rem; padding: 0.5rem 0.6rem; }
  tbody tr > * { padding: 0; text-align: left; width: auto; }
  .place { grid-row: span 4; }
  .name, .time, .reason { grid-column: 2 / -1; }
  .place, .name, .time { width: auto; text-align: left; }
  .time { display: flex; flex-wrap: wrap; align-items: baseline; }
  .goodput, .rtt, .probes, .used { font-size: 0.82rem; }
  .goodput::before, .rtt::before, .probes::before, .used::before { color: var(--label); }
  .goodput::before { content: 'Goodput '; }
  .rtt::before { content: 'Round trip '; }
  .probes::before { content: 'Probes '; }
  .used::before { content: 'Used '; }
  button { min-width: 2.75rem; }
}
@media (forced-colors: active) {
  svg { forced-color-adjust: none; }
}
`;function Et({verdict:r,close:t,mirrors:e}){if(r==="none")return"No mirror could be measured. The table shows why.";let o=e.map(i=>i.url),n=i=>gt(o[i],o),s=i=>T(e[i].time_s);if(r==="only")return`${n(0)}: about ${s(0)}.${e.length===1?"":" No other mirror could be measured."}`;if(r==="first")return`${n(0)} is fastest: about ${s(0)}, against ${s(1)} for the next.`;let a=t===2?`${n(0)} and ${n(1)}`:`${n(0)} and ${t-1} others`,c=s(0)===s(t-1)?s(0):`${s(0)} to ${s(t-1)}`;return`Too close to call: ${a}, about ${c}.`}function T(r){return Number.isFinite(r)?r<59.95?x(r,"s"):xt(Math.round(r)):x(r,"s")}function Tt({lower_s:r,upper_s:t}){return r===null?"calibrating":t===1/0?`${T(r)} or longer`:`${T(r)} to ${T(t)}`}var z=class{#e;#r;#t;#o=null;constructor(t,e,o){this.#e=e,this.#r=o;let n=t.attachShadow({mode:"open"}),s=new CSSStyleSheet;s.replaceSync(St),n.adoptedStyleSheets=[s],this.#t=this.#s(n),this.#n("ready")}async start(){if(this.#o!==null)return;let{mirrors:t,size_bytes:e,budget_bytes:o}=this.#e,{verdict:n,progress:s}=this.#t;this.#o=new AbortController,n.className="verdict",M(n,""),s.value=0,this.#n("running");try{let a=await this.#r({mirrors:t.map(c=>c.url),size_bytes:e,budget_bytes:o,signal:this.#o.signal,onProgress:c=>this.#i(c)});this.#a(a)}catch(a){this.#o.signal.aborted?(M(n,"Cancelled."),this.#n("ready")):(n.classList.add("trouble"),M(n,a.message),this.#n("ready"))}finally{this.#o=null}}cancel(){this.#o?.abort(new DOMException("The comparison was cancelled.","AbortError"))}#s(t){let{mirrors:e,size_bytes:o,budget_bytes:n,about:s}=this.#e,a=e.length===1?"1 mirror":`${e.length} mirrors`,c=e.length===1?"":`, ${N(n*e.length)} in all`,i={box:h("section",{"aria-label":"Which mirror?"}),button:h("button",{type:"button",class:"go"},"Compare"),stop:h("button",{type:"button"},"Cancel"),progress:h("progress",{max:"1",value:"0","aria-label":"Comparison"}),turns:h("ul",{class:"turns"}),verdict:h("p",{class:"verdict",role:"status","aria-live":"polite"}),table:h("div",{class:"table"}),notes:Me(s)};return i.running=h("div",{class:"running"},h("div",{class:"bar"},i.progress,i.stop),i.turns),i.box.append(h("header",{},h("h2",{},"Which mirror?"," ",h("small",{},`for ${N(o)}`)),i.button),h("p",{class:"cost"},`Downloads up to ${N(n)} from each of ${a}${c}, to forecast how long the file will take.`),i.running,i.verdict,i.table,i.notes),t.append(i.box),i.button.addEventListener("click",()=>{this.start(),i.stop.focus()}),i.stop.addEventListener("click",()=>this.cancel()),i}#n(t){let{box:e,button:o,stop:n,running:s,table:a,notes:c}=this.#t,i=e.getRootNode().activeElement;e.dataset.state=t,o.hidden=t==="running",s.hidden=t!=="running",a.hidden=c.hidden=t!=="done",M(o,t==="done"?"Compare again":"Compare"),i===n&&t!=="running"&&o.focus()}#i({share:t,mirrors:e}){let{progress:o,turns:n}=this.#t;for(o.value=t;n.children.length<e.length;)n.append(h("li",{},kt(e[n.children.length].url),h("span")));for(let[s,{state:a,probes:c}]of e.entries()){let i=n.children[s];i.dataset.state=a;let l=c===1?"1 probe":`${c} probes`;M(i.lastChild,a==="failed"?"failed":c===0?a:l)}}#a(t){let{verdict:e,table:o}=this.#t;e.classList.add(t.verdict),o.replaceChildren(ge(t,this.#e)),this.#n("done"),M(e,Et(t))}};function ge(r,t){let e=_e(r.mirrors),o=vt(r.mirrors.find(s=>s.goodput)?.goodput.level),n=s=>h("th",{role:"columnheader",scope:"col"},s);return h("table",{role:"table"},h("caption",{class:"unseen"},`Mirrors by forecast time to download ${N(t.size_bytes)}`),h("thead",{role:"rowgroup"},h("tr",{role:"row"},...["#","Mirror",`Forecast time, ${o} interval`,"Goodput","Round trip","Probes","Used"].map(n))),h("tbody",{role:"rowgroup"},...r.mirrors.map(s=>we(s,r,e,t))))}function we(r,{verdict:t,close:e},o,n){let s=(l,...u)=>h("td",{role:"cell",class:l},...u),a=r.close&&t==="close"&&1<e,c=r.rank===null?"–":a?"=1":String(r.rank),i=h("tr",{role:"row",class:r.rank===null?"failed":a?"tied":r.rank===1?"first":""},s("place",c),h("th",{role:"rowheader",scope:"row",class:"name"},xe(r,n)));if(r.rank===null){let l=s("reason",r.failure);l.colSpan=4,i.append(l)}else i.append(s("time",h("strong",{},T(r.time_s)),h("span",{class:"aside"},Tt(r)),ye(r,o)),s("goodput",x(r.goodput.value,"bit/s"),At(r.goodput,"ratio")),s("rtt",x(r.rtt?.value,"s"),At(r.rtt,"s")),s("probes",_t(r.probes),r.failures===0?"":` (${r.failures} failed)`));return i.append(s("used",x(r.bytes,"bytes"))),i}function At(r,t){return h("span",{class:"aside trust"},r===null?"":`error ${x(r.error,t)}, ${r.method}`)}function ye({time_s:r,lower_s:t,upper_s:e},o){let n=(c,i)=>{let l=document.createElementNS($e,c);for(let[u,m]of Object.entries(i))l.setAttribute(u,m);return l},s=c=>`${Math.min(100,100*c/o).toFixed(2)}%`,a=n("svg",{width:"100%",height:"10","aria-hidden":"true"});if(a.append(n("line",{x1:"0",x2:"100%",y1:"5",y2:"5",class:"axis"})),t!==null){let c=Math.max(.5,100*(Math.min(o,e)-t)/o);a.append(n("rect",{x:s(t),width:`${Math.max(0,c).toFixed(2)}%`,y:"1",height:"8",class:"band"}))}return a.append(n("circle",{cx:s(r),cy:"5",r:"3.5",class:"mark"})),a}function _e(r){let t=r.filter(e=>e.rank!==null).map(e=>Math.max(e.time_s*1.05,Math.min(e.upper_s??0,e.time_s*2)));return Math.max(...t,Number.MIN_VALUE)}function xe({url:r,kind:t},{file:e}){let o=kt(r);if(!/^https?:/.test(r)||t==="station"&&!e)return o;let n=t==="station"?ve(e,r):r;return n===null?o:h("a",{href:n,rel:"noreferrer"},o)}function ve(r,t){try{let e=new URL(r,t);return/^https?:$/.test(e.protocol)?e.href:null}catch{return null}}function kt(r){let[t,...e]=I(r).split("/"),o=e.length===0?"":`/${e.join("/")}`;return h("span",{class:"mirror"},t,h("small",{},o))}function Me(r){let t=h("ul",{},...Se.map(o=>h("li",{},o))),e=r===void 0?[]:[h("p",{},h("a",{href:r},"Compare your own mirrors"))];return h("details",{},h("summary",{},"Limits of this forecast"),t,...e)}var $e="http://www.w3.org/2000/svg",Se=["The forecast assumes that the conditions of the last seconds continue. During a download of minutes or hours they may change.","Probes are short. Connections start slowly, also after each pause between rounds, so on long and fast paths a real download is faster than the forecast. Where servers throttle long downloads, it is slower. For this reason the small probes at the start do not count; to use larger probes, increase the budget.","The interval is that of one more probe: nine of ten should fall inside. Two mirrors are too close to call if the forecast of either lies inside the interval of the other.","For a file on a web server, the round trip is the time to its first byte, including the server’s own delay.","Used bytes do not include packet headers; failed probes count in full. If a server cannot send a part of a file, its transfer is broken off, and bytes that are still on the way are not counted."];var Nt="barograph-mirrors",U=document.currentScript??Te(),Rt=new URL(".",U?.src??location.href),D=yt(Rt,{nonce:U?.nonce});D.show=(r,t)=>new z(r,t,D);window.barographMirrors=D;U?.dataset.mirrors!==void 0&&Ee(U);function Ee(r){let{mirrors:t,size:e,budget:o,file:n,start:s,theme:a}=r.dataset,c=document.createElement(Nt);r.after(c),Ae(c,a);try{let i=D.show(c,{mirrors:O(t,{secure:location.protocol==="https:"}),size_bytes:q(e),budget_bytes:o===void 0?E.usual:q(o),file:n,about:new URL("mirrors.html",Rt).href});s==="auto"&&i.start()}catch(i){c.textContent=`Which mirror? ${i.message}`}}function Te(){return[...document.querySelectorAll("script[type=module][src]")].find(t=>/\/mirrors\.js$/.test(new URL(t.src).pathname)&&t.nextElementSibling?.localName!==Nt)??null}function Ae(r,t){let e=matchMedia("(prefers-color-scheme: dark)"),o=()=>{if(!r.isConnected)return e.removeEventListener("change",o);let n=e.matches&&getComputedStyle(r.parentElement??r).colorScheme.includes("dark");r.dataset.theme=t??(n?"dark":"light")};e.addEventListener("change",o),o()}})();
